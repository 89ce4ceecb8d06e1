package ledgertest

import (
	"fmt"

	"github.com/fencedrun/fencedrun/ledger"
)

var homeTests = []test{
	{"the directory says where a run lives", homeSays},
	{"a run is forgotten by the conversation it lives on only", homeForgets},
	{"a tombstone is for a run that nobody knows", buries},
	{"tombstones whose time is up are exhumed, nothing else", exhumes},
}

func homeSays(b *bench) {
	if h := b.home("r"); h.Found {
		b.Errorf("an unknown run lives at %+v", h)
	}
	b.write("c1", ledger.Write{Home: &ledger.HomeWrite{Run: "r"}})
	if h := b.home("r"); !h.Found || h.Conversation != "c1" || len(h.Tombstone) != 0 {
		b.Errorf("the run lives at %+v, want c1", h)
	}
	b.write("c2", ledger.Write{Home: &ledger.HomeWrite{Run: "r", Was: b.home("r")}})
	if h := b.home("r"); h.Conversation != "c2" {
		b.Errorf("the run lives at %+v, want c2", h)
	}
	b.write("c2", ledger.Write{Home: &ledger.HomeWrite{Run: "r", Was: b.home("r")}}) // again
	for _, c := range []string{"c1", "c2", "c3"} {
		if h := b.load(c, ledger.Query{Run: "r"}).Home; h.Conversation != "c2" || !h.Found {
			b.Errorf("Load(%s) says %+v, want c2", c, h)
		}
	}
	if h := b.home("R"); h.Found {
		b.Errorf("names were confused: %+v", h)
	}
}

func homeForgets(b *bench) {
	b.write("c1", ledger.Write{Home: &ledger.HomeWrite{Run: "moved"}})
	b.write("c1", ledger.Write{Home: &ledger.HomeWrite{Run: "stays"}})
	b.write("c2", ledger.Write{Home: &ledger.HomeWrite{Run: "moved", Was: b.home("moved")}})
	if _, err := b.store.Bury(b.ctx, "dead", []byte("x"), 1); err != nil {
		b.Fatal(err)
	}
	b.write("c1", ledger.Write{Forget: []string{"moved", "dead", "unknown"}})
	if h := b.home("moved"); h.Conversation != "c2" {
		b.Errorf("the old conversation forgot a run that had moved: %+v", h)
	}
	if h := b.home("dead"); !h.Found {
		b.Error("a conversation forgot a tombstone")
	}
	b.write("c1", ledger.Write{Forget: []string{"stays"}})
	b.write("c2", ledger.Write{Forget: []string{"moved"}})
	for _, run := range []string{"stays", "moved"} {
		if h := b.home(run); h.Found {
			b.Errorf("%s is not forgotten: %+v", run, h)
		}
	}
}

func buries(b *bench) {
	b.write("c", ledger.Write{Home: &ledger.HomeWrite{Run: "lives"}})
	for _, c := range []struct {
		run  string
		want bool
	}{{"lives", false}, {"dead", true}, {"dead", false}} {
		stone := "stone of " + c.run + "\x00\xff"
		if buried, err := b.store.Bury(b.ctx, c.run, []byte(stone), 1<<50); err != nil || buried != c.want {
			b.Errorf("Bury(%s) = %v, %v, want %v", c.run, buried, err, c.want)
		}
		if c.run == "dead" {
			for _, h := range []ledger.Home{b.home("dead"), b.load("c", ledger.Query{Run: "dead"}).Home} {
				if !h.Found || h.Conversation != "" || string(h.Tombstone) != stone {
					b.Errorf("the tombstone is %+v", h)
				}
			}
		}
	}
	if buried, err := b.store.Bury(b.ctx, "dead", []byte("another"), 1); err != nil || buried || string(b.home("dead").Tombstone) == "another" {
		b.Errorf("a tombstone was replaced: %v, %v", buried, err)
	}
	// The run turns up after all.
	b.write("c", ledger.Write{Home: &ledger.HomeWrite{Run: "dead", Was: b.home("dead")}})
	if h := b.home("dead"); h.Conversation != "c" || len(h.Tombstone) != 0 {
		b.Errorf("the run lives at %+v, want c", h)
	}
}

func exhumes(b *bench) {
	now := b.load("c", ledger.Query{}).Now
	for i := range 10 {
		if _, err := b.store.Bury(b.ctx, fmt.Sprint("due", i), []byte("x"), now-1); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := b.store.Bury(b.ctx, "later", []byte("x"), now+seconds(3600)); err != nil {
		b.Fatal(err)
	}
	if _, err := b.store.Bury(b.ctx, "moved in", []byte("x"), now-1); err != nil {
		b.Fatal(err)
	}
	b.write("c", ledger.Write{Home: &ledger.HomeWrite{Run: "lives"}})
	b.write("c", ledger.Write{Home: &ledger.HomeWrite{Run: "moved in", Was: b.home("moved in")}})
	total := 0
	for i, want := range []int{4, 4, 2, 0} {
		n, err := b.store.Exhume(b.ctx, 4)
		if err != nil || n != want {
			b.Errorf("call %d: exhumed %d, %v, want %d", i+1, n, err, want)
		}
		total += n
	}
	for i := range 10 {
		if b.home(fmt.Sprint("due", i)).Found {
			b.Errorf("tombstone %d is still there after %d were exhumed", i, total)
		}
	}
	for _, run := range []string{"later", "lives", "moved in"} {
		if !b.home(run).Found {
			b.Errorf("%q was exhumed", run)
		}
	}
}
