package ledgertest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
)

var applyTests = []test{
	{"what is written is read, byte for byte", exactBytes},
	{"names and keys are bytes", exactNames},
	{"a change replaces, deletes, and leaves the rest", replaces},
	{"the tag is the one that was written", exactTag},
	{"refused when the tag is another", refusesTag},
	{"refused when an absent key has a row", refusesPresent},
	{"refused when the run lives elsewhere", refusesHome},
	{"a refusal writes nothing and may show the present", refusalIsClean},
	{"the same change a second time is refused", refusesRepetition},
	{"dropping leaves nothing behind", drops},
	{"a thousand rows in one change", manyRows},
	{"a done ctx is an error and writes nothing", doneCtx},
}

func exactBytes(b *bench) {
	bodies := []string{
		"", "\x00", "\x00\x00a", "a\x00", "\xff\xfe\xfd", "\xc3\x28", "'", `"`, `\`, `{"a":1}`, "\n\r\t", " a ", "1", "NULL",
		strings.Repeat("\x00\xff'\"", 16*1024), strings.Repeat("ab", 512*1024),
	}
	rows := []ledger.Row{ledger.NewRow("nil", fence.Index{}, nil)}
	for i, body := range bodies {
		rows = append(rows, row(fmt.Sprintf("k%02d", i), body))
	}
	for i, ix := range []fence.Index{
		{Open: fence.UnresolvedEffect, At: 1},
		{Open: fence.OpenInbound, At: 1 << 50, Due: 1<<50 + 1},
		{Landed: 1 << 60, Due: 1},
		{Landed: 1},
	} {
		rows = append(rows, row(fmt.Sprintf("index%d", i), "x", ix))
	}
	head := row("", "\x00head\xff", fence.Index{Due: 77})
	b.write("c", ledger.Write{Head: head, Put: rows})
	b.wantRows("c", rows...)

	var keys []string
	for _, r := range rows {
		keys = append(keys, r.Key)
	}
	snap := b.load("c", ledger.Query{Keys: keys})
	b.sameRow(snap.Head, head)
	if len(snap.Rows) != len(rows) {
		b.Errorf("Load gave %d of %d rows", len(snap.Rows), len(rows))
	}
	for _, got := range snap.Rows {
		for _, want := range rows {
			if want.Key == got.Key {
				b.sameRow(got, want)
			}
		}
	}
}

func exactNames(b *bench) {
	for i, conversation := range nasty {
		w := ledger.Write{Head: row("", fmt.Sprint("head ", i)), Home: &ledger.HomeWrite{Run: conversation}}
		for j, key := range nasty {
			w.Put = append(w.Put, row(key, fmt.Sprint(i, " ", j)))
			w.Leases = append(w.Leases, ledger.LeaseWrite{Run: key, Nonce: nasty[len(nasty)-1-j], For: time.Minute})
		}
		b.write(conversation, w)
	}
	for i, conversation := range nasty {
		snap := b.load(conversation, ledger.Query{Keys: nasty, Run: conversation})
		b.sameRow(snap.Head, row("", fmt.Sprint("head ", i)))
		if len(snap.Rows) != len(nasty) || len(snap.Leases) != len(nasty) {
			b.Errorf("%.20q: %d rows and %d leases, want %d: names were confused", conversation, len(snap.Rows), len(snap.Leases), len(nasty))
		}
		if snap.Home.Conversation != conversation {
			b.Errorf("run %.20q lives on %.20q", conversation, snap.Home.Conversation)
		}
		want := make([]ledger.Row, len(nasty))
		for j, key := range nasty {
			want[j] = row(key, fmt.Sprint(i, " ", j))
		}
		b.wantRows(conversation, want...)
	}
}

func replaces(b *bench) {
	b.write("c", ledger.Write{
		Head:   row("", "head 1", fence.Index{Due: 1}),
		Put:    []ledger.Row{row("a", "1", fence.Index{Open: fence.OpenInbound, At: 5, Due: 1}), row("b", "1"), row("c", "1")},
		Leases: []ledger.LeaseWrite{{Run: "r", Nonce: "1", For: time.Minute}, {Run: "r", Nonce: "2", For: time.Minute}},
	})
	b.write("other", ledger.Write{Put: []ledger.Row{row("a", "other"), row("b", "other")}})
	b.write("c", ledger.Write{
		Head: row("", "head 2", fence.Index{Due: 2}),
		Put:  []ledger.Row{row("a", "2", fence.Index{Landed: 9, Due: 2}), row("d", "2")}, Delete: []string{"b", "never there"},
		Leases: []ledger.LeaseWrite{{Run: "r", Nonce: "1"}, {Run: "r", Nonce: "3", For: time.Minute}},
	})
	b.wantRows("c", row("a", "2", fence.Index{Landed: 9, Due: 2}), row("c", "1"), row("d", "2"))
	b.wantRows("other", row("a", "other"), row("b", "other"))
	snap := b.load("c", ledger.Query{Open: true, Tail: true})
	b.sameRow(snap.Head, row("", "head 2", fence.Index{Due: 2}))
	if len(snap.Leases) != 2 {
		b.Errorf("leases %v, want those of nonces 2 and 3", snap.Leases)
	}
	if snap.OpenCount != 0 || len(snap.Open) != 0 {
		b.Errorf("a row that is open no more is listed: %v", snap.Open)
	}
	if len(snap.Tail) != 1 {
		b.Errorf("tail %v, want the row that landed", snap.Tail)
	}
}

func exactTag(b *bench) {
	for i, tag := range nasty {
		was := b.load("c", ledger.Query{}).Tag
		r := b.apply("c", ledger.Write{Tag: was, NewTag: tag, Head: row("", fmt.Sprint(i))})
		if got := b.load("c", ledger.Query{}).Tag; !r.Applied || got != tag {
			b.Errorf("the tag is %.20q, want %.20q", got, tag)
		}
	}
}

func refusesTag(b *bench) {
	w := ledger.Write{Tag: "x", NewTag: "y", Head: row("", "h"), Put: []ledger.Row{row("a", "1")}}
	if b.apply("c", w).Applied {
		b.Error("a change of a conversation that does not exist was applied")
	}
	if b.load("c", ledger.Query{}).Tag != "" {
		b.Error("a refused change made the conversation")
	}
	old := b.write("c", ledger.Write{Put: []ledger.Row{row("a", "0")}})
	now := b.write("c", ledger.Write{Put: []ledger.Row{row("a", "1")}})
	for _, tag := range []string{"", old, now + "x", now[:len(now)-1], strings.ToUpper(now), now + "\x00"} {
		if tag == now {
			continue
		}
		was := b.state("c")
		if b.apply("c", ledger.Write{Tag: tag, NewTag: "z", Head: row("", "h2"), Put: []ledger.Row{row("a", "2")}}).Applied {
			b.Errorf("a change decided on tag %q was applied at %q", tag, now)
		}
		b.unchanged("wrong tag", "c", was)
	}
}

func refusesPresent(b *bench) {
	b.write("other", ledger.Write{Put: []ledger.Row{row("new", "1")}})
	b.write("c", ledger.Write{Put: []ledger.Row{row("a", "1"), row("b", "1"), row("gone", "1")}})
	tag := b.write("c", ledger.Write{Delete: []string{"gone"}})
	for _, absent := range [][]string{{"a"}, {"new", "b"}, {"a", "new"}, {"new", "gone", "b"}} {
		was := b.state("c")
		w := ledger.Write{Tag: tag, NewTag: b.tag(), Head: row("", "h2"), Put: []ledger.Row{row(absent[0], "2")}, Absent: absent}
		if b.apply("c", w).Applied {
			b.Fatalf("a change that needs %q absent was applied", absent)
		}
		b.unchanged("present key", "c", was)
	}
	w := ledger.Write{Tag: tag, NewTag: b.tag(), Head: row("", "h2"), Put: []ledger.Row{row("new", "2"), row("gone", "2")}, Absent: []string{"new", "gone", "A"}}
	if !b.apply("c", w).Applied {
		b.Error("refused although the keys are absent")
	}
	b.wantRows("c", row("a", "1"), row("b", "1"), row("new", "2"), row("gone", "2"))
	w = ledger.Write{NewTag: b.tag(), Head: row("", "h"), Put: []ledger.Row{row("x", "1")}, Absent: []string{"x"}}
	if !b.apply("fresh", w).Applied {
		b.Error("refused although the conversation is new")
	}
}

func refusesHome(b *bench) {
	b.write("c1", ledger.Write{Home: &ledger.HomeWrite{Run: "r"}})
	b.write("c2", ledger.Write{})
	if _, err := b.store.Bury(b.ctx, "dead", []byte("stone"), 1); err != nil {
		b.Fatal(err)
	}
	in := func(c string) ledger.Home { return ledger.Home{Found: true, Conversation: c} }
	for _, c := range []struct {
		run  string
		was  ledger.Home
		want bool
	}{
		{"r", ledger.Home{}, false},
		{"r", ledger.Home{Found: true}, false}, // a tombstone
		{"r", in("c2"), false},
		{"r", in("c"), false},
		{"dead", ledger.Home{}, false},
		{"dead", in("c1"), false},
		{"unknown", in("c1"), false},
		{"unknown", ledger.Home{Found: true}, false},
		{"r", in("c1"), true},
		{"dead", ledger.Home{Found: true}, true},
		{"unknown", ledger.Home{}, true},
	} {
		was := b.state("c2", "r", "dead", "unknown")
		w := ledger.Write{
			Tag: was.snap.Tag, NewTag: b.tag(), Head: row("", "h2"), Put: []ledger.Row{row("k", "2")},
			Leases: []ledger.LeaseWrite{{Run: "k", Nonce: "n", For: time.Minute}},
			Home:   &ledger.HomeWrite{Run: c.run, Was: c.was},
		}
		if got := b.apply("c2", w).Applied; got != c.want {
			b.Errorf("run %s, thought to be %+v: applied %v, want %v", c.run, c.was, got, c.want)
		}
		if !c.want {
			b.unchanged("wrong home", "c2", was)
		} else if h := b.home(c.run); h.Conversation != "c2" || !h.Found {
			b.Errorf("run %s lives at %+v, want c2", c.run, h)
		}
	}
}

func refusalIsClean(b *bench) {
	b.write("c", ledger.Write{
		Put:    []ledger.Row{row("a", "1", fence.Index{Landed: 3}), row("b", "1", fence.Index{Open: fence.OpenInbound, At: 4})},
		Leases: []ledger.LeaseWrite{{Run: "r", Nonce: "n", For: time.Minute}}, Home: &ledger.HomeWrite{Run: "r"},
	})
	was := b.state("c", "r", "new")
	want := ledger.Query{Keys: []string{"a", "x"}, Run: "r", Tail: true, Since: 2, Open: true}
	for _, w := range []ledger.Write{
		{Tag: "no", Home: &ledger.HomeWrite{Run: "new"}},
		{Tag: was.snap.Tag, Absent: []string{"x", "a"}, Home: &ledger.HomeWrite{Run: "new"}},
		{Tag: was.snap.Tag, Home: &ledger.HomeWrite{Run: "r"}},
		{Tag: "no", Drop: true},
	} {
		w.NewTag, w.Head, w.Want = b.tag(), row("", "h2"), want
		w.Put, w.Delete, w.Forget = []ledger.Row{row("x", "1")}, []string{"b"}, []string{"r"}
		w.Leases = []ledger.LeaseWrite{{Run: "r", Nonce: "n"}, {Run: "r", Nonce: "m", For: time.Minute}}
		r := b.apply("c", w)
		if r.Applied {
			b.Fatalf("applied: %+v", w)
		}
		b.unchanged("refused", "c", was)
		if r.Current == nil {
			continue
		}
		load := b.load("c", want)
		if r.Current.Tag != load.Tag || len(r.Current.Rows) != len(load.Rows) || len(r.Current.Tail) != 1 || len(r.Current.Open) != 1 ||
			r.Current.OpenCount != 1 || !sameHome(r.Current.Home, load.Home) || !sameLeases(r.Current.Leases, load.Leases) {
			b.Errorf("the refusal shows %+v, Load %+v", *r.Current, load)
		}
		b.sameRow(r.Current.Head, load.Head)
		if r.Current.Now < r.Now-1000 || r.Current.Now > load.Now {
			b.Errorf("the refusal shows the time %d, Load after it %d", r.Current.Now, load.Now)
		}
	}
}

func refusesRepetition(b *bench) {
	w := ledger.Write{NewTag: b.tag(), Head: row("", "h"), Put: []ledger.Row{row("a", "1")}, Home: &ledger.HomeWrite{Run: "r"}}
	for i := range 3 {
		if got := b.apply("c", w).Applied; got != (i == 0) {
			b.Errorf("time %d: applied %v", i+1, got)
		}
	}
	b.wantRows("c", row("a", "1"))
	w.Tag, w.NewTag, w.Home, w.Put = w.NewTag, b.tag(), nil, []ledger.Row{row("a", "2")}
	for i := range 3 {
		if got := b.apply("c", w).Applied; got != (i == 0) {
			b.Errorf("second change, time %d: applied %v", i+1, got)
		}
	}
	b.wantRows("c", row("a", "2"))
}

func drops(b *bench) {
	b.write("other", ledger.Write{Put: []ledger.Row{row("a", "1")}, Leases: []ledger.LeaseWrite{{Run: "r", Nonce: "n", For: time.Minute}}})
	tag := b.write("c", ledger.Write{
		Put:    []ledger.Row{row("a", "1", fence.Index{Open: fence.OpenInbound, At: 1, Due: 1}), row("b", "1", fence.Index{Landed: 1})},
		Leases: []ledger.LeaseWrite{{Run: "r", Nonce: "n", For: time.Minute}}, Home: &ledger.HomeWrite{Run: "r"},
	})
	if b.apply("c", ledger.Write{Tag: "no", Drop: true}).Applied {
		b.Error("dropped at the wrong tag")
	}
	if b.apply("never there", ledger.Write{Tag: "no", Drop: true}).Applied {
		b.Error("dropped what was never there")
	}
	if !b.apply("c", ledger.Write{Tag: tag, Drop: true}).Applied {
		b.Error("not dropped")
	}
	if b.apply("c", ledger.Write{Tag: tag, NewTag: b.tag(), Head: row("", "h")}).Applied {
		b.Error("a change was applied to a conversation that is gone")
	}
	snap := b.load("c", ledger.Query{Keys: []string{"a", "b"}, Tail: true, Open: true})
	if snap.Tag != "" || len(snap.Rows)+len(snap.Tail)+len(snap.Open)+len(snap.Leases)+snap.OpenCount != 0 {
		b.Errorf("a dropped conversation shows %+v", snap)
	}
	b.wantRows("c")
	if len(b.scan(ledger.Scan{Kind: ledger.ScanOpen, Open: fence.OpenInbound, Before: 1 << 50})) != 0 || len(b.scan(ledger.Scan{Kind: ledger.ScanDue})) != 0 {
		b.Error("rows of a dropped conversation are found")
	}
	b.write("c", ledger.Write{Put: []ledger.Row{row("z", "2")}})
	b.wantRows("c", row("z", "2"))
	if leases := b.load("c", ledger.Query{}).Leases; len(leases) != 0 {
		b.Errorf("a conversation that was made anew has the leases %v", leases)
	}
	if h := b.home("r"); h.Conversation != "c" {
		b.Errorf("dropping changed the directory: %+v", h)
	}
	b.wantRows("other", row("a", "1"))
	if len(b.load("other", ledger.Query{}).Leases) != 1 {
		b.Error("dropping took a lease of another conversation")
	}
}

func manyRows(b *bench) {
	var rows []ledger.Row
	var keys, odd []string
	for i := range 1000 {
		key := fmt.Sprintf("key/%04d", i)
		rows = append(rows, row(key, strings.Repeat("x", i)))
		keys = append(keys, key)
		if i%2 == 1 {
			odd = append(odd, key)
		}
	}
	b.write("c", ledger.Write{Put: rows, Absent: keys})
	if n := len(b.load("c", ledger.Query{Keys: keys}).Rows); n != 1000 {
		b.Errorf("Load gave %d of 1000 rows", n)
	}
	b.write("c", ledger.Write{Delete: odd})
	if n := len(b.load("c", ledger.Query{Keys: keys}).Rows); n != 500 {
		b.Errorf("Load gave %d of 500 rows", n)
	}
}

func doneCtx(b *bench) {
	b.write("c", ledger.Write{Put: []ledger.Row{row("a", "1")}, Leases: []ledger.LeaseWrite{{Run: "r", Nonce: "n", For: time.Minute}}})
	was := b.state("c", "r")
	ctx, cancel := contextWithCancel(b)
	cancel()
	calls := map[string]func() error{
		"Load": func() error { _, err := b.store.Load(ctx, "c", ledger.Query{}); return err },
		"Apply": func() error {
			_, err := b.store.Apply(ctx, "c", ledger.Write{Tag: was.snap.Tag, NewTag: "x", Head: row("", "h"), Put: []ledger.Row{row("b", "1")}})
			return err
		},
		"Renew": func() error {
			_, err := b.store.Renew(ctx, []ledger.LeaseKey{{Conversation: "c", Run: "r", Nonce: "n"}}, time.Hour)
			return err
		},
		"FindRun": func() error { _, err := b.store.FindRun(ctx, "r"); return err },
		"Bury":    func() error { _, err := b.store.Bury(ctx, "r", nil, 1); return err },
		"Scan": func() error {
			_, err := b.store.Scan(ctx, ledger.Scan{Kind: ledger.ScanRows, Conversation: "c", Limit: 1})
			return err
		},
		"Exhume": func() error { _, err := b.store.Exhume(ctx, 1); return err },
	}
	if locker, ok := b.store.(ledger.Locker); ok {
		calls["WithLock"] = func() error { return locker.WithLock(ctx, "c", func(ledger.Tx) error { return nil }) }
	}
	for name, call := range calls {
		if err := call(); err == nil {
			b.Errorf("%s with a done ctx gave no error", name)
		} else if !errors.Is(err, ctx.Err()) {
			b.Errorf("%s with a done ctx: %v", name, err)
		}
	}
	b.unchanged("ctx was done", "c", was)
}
