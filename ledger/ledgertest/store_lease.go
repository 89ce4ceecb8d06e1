package ledgertest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
)

var leaseTests = []test{
	{"a lease runs from the store's now", leaseRuns},
	{"renewing extends, and changes no tag", renews},
	{"renewing creates nothing", renewsOnly},
	{"a lease that has run out can be renewed", renewsLapsed},
	{"one call renews the leases of many conversations", renewsMany},
}

func leaseKey(conversation, run, nonce string) ledger.LeaseKey {
	return ledger.LeaseKey{Conversation: conversation, Run: run, Nonce: nonce}
}

func (b *bench) renew(d time.Duration, keys ...ledger.LeaseKey) []ledger.Renewed {
	b.Helper()
	r, err := b.store.Renew(b.ctx, keys, d)
	if err != nil {
		b.Fatalf("Renew: %v", err)
	}
	if len(r) != len(keys) {
		b.Fatalf("Renew gave %d answers to %d questions", len(r), len(keys))
	}
	return r
}

func (b *bench) lease(conversation, run, nonce string) (fence.Millis, bool) {
	b.Helper()
	for _, l := range b.load(conversation, ledger.Query{}).Leases {
		if l.Run == run && l.Nonce == nonce {
			return l.Until, true
		}
	}
	return 0, false
}

func leaseRuns(b *bench) {
	before := b.load("c", ledger.Query{}).Now
	b.write("c", ledger.Write{Leases: []ledger.LeaseWrite{{Run: "r", Nonce: "n", For: time.Minute}, {Run: "r", Nonce: "m", For: 1500 * time.Microsecond}}})
	after := b.load("c", ledger.Query{}).Now
	if until, ok := b.lease("c", "r", "n"); !ok || until < before+seconds(60) || until > after+seconds(60) {
		b.Errorf("a lease of a minute, taken between %d and %d, runs until %d", before, after, until)
	}
	if until, ok := b.lease("c", "r", "m"); !ok || until < before+2 || until > after+2 {
		b.Errorf("a lease of 1.5 ms, taken between %d and %d, runs until %d, want it rounded up", before, after, until)
	}
	// Taken again it runs from then.
	b.write("c", ledger.Write{Leases: []ledger.LeaseWrite{{Run: "r", Nonce: "n", For: time.Second}}})
	if until, _ := b.lease("c", "r", "n"); until > b.load("c", ledger.Query{}).Now+seconds(1) {
		b.Errorf("a lease that was taken again for a second still runs until %d", until)
	}
}

func renews(b *bench) {
	tag := b.write("c", ledger.Write{Put: []ledger.Row{row("a", "1")}, Leases: []ledger.LeaseWrite{{Run: "r", Nonce: "n", For: time.Second}, {Run: "r", Nonce: "other", For: time.Second}}})
	before := b.load("c", ledger.Query{}).Now
	r := b.renew(time.Hour, leaseKey("c", "r", "n"))[0]
	after := b.load("c", ledger.Query{}).Now
	until, _ := b.lease("c", "r", "n")
	if !r.Found || r.Tag != tag || r.Until != until || until < before+seconds(3600) || until > after+seconds(3600) {
		b.Errorf("renewed between %d and %d for an hour: %+v, and it runs until %d", before, after, r, until)
	}
	if other, _ := b.lease("c", "r", "other"); other > after+seconds(1) {
		b.Errorf("the lease of another delivery was renewed, until %d", other)
	}
	if b.load("c", ledger.Query{}).Tag != tag {
		b.Error("renewing changed the tag")
	}
	if !b.apply("c", ledger.Write{Tag: tag, NewTag: b.tag(), Head: row("", "h")}).Applied {
		b.Error("a change decided on before the renewal was refused")
	}
}

func renewsOnly(b *bench) {
	tag := b.write("c", ledger.Write{Leases: []ledger.LeaseWrite{{Run: "r", Nonce: "n", For: time.Minute}}})
	tag2 := b.write("d", ledger.Write{})
	was, wasD := b.state("c"), b.state("d")
	keys := []ledger.LeaseKey{leaseKey("c", "r", "x"), leaseKey("c", "x", "n"), leaseKey("d", "r", "n"), leaseKey("nothing", "r", "n"), leaseKey("c", "n", "r"), leaseKey("", "", "")}
	want := []string{tag, tag, tag2, "", tag, ""}
	for i, r := range b.renew(time.Hour, keys...) {
		if r.Found || r.Tag != want[i] {
			b.Errorf("renewing %+v: %+v, want not found and tag %q", keys[i], r, want[i])
		}
	}
	b.unchanged("renewed what is not there", "c", was)
	b.unchanged("renewed what is not there", "d", wasD)
	if b.load("nothing", ledger.Query{}).Tag != "" {
		b.Error("renewing made a conversation")
	}
	b.write("c", ledger.Write{Leases: []ledger.LeaseWrite{{Run: "r", Nonce: "n"}}})
	if b.renew(time.Hour, leaseKey("c", "r", "n"))[0].Found {
		b.Error("a lease that was given up came back")
	}
	if got := b.load("c", ledger.Query{}).Leases; len(got) != 0 {
		b.Errorf("leases %v, want none", got)
	}
}

func renewsLapsed(b *bench) {
	b.write("c", ledger.Write{Leases: []ledger.LeaseWrite{{Run: "r", Nonce: "n", For: time.Millisecond}}})
	until, ok := b.lease("c", "r", "n")
	b.wait(until)
	if _, still := b.lease("c", "r", "n"); !ok || !still {
		b.Error("a lease that ran out disappeared: nobody gave it up")
	}
	if r := b.renew(time.Minute, leaseKey("c", "r", "n"))[0]; !r.Found || r.Until <= until {
		b.Errorf("renewing a lease that ran out at %d: %+v", until, r)
	}
}

func renewsMany(b *bench) {
	const n = 200
	rnd := rand.New(rand.NewPCG(1, 2))
	var keys []ledger.LeaseKey
	tags := map[string]string{}
	for i := range n {
		c := fmt.Sprintf("c%d", i%40)
		k := leaseKey(c, fmt.Sprintf("r%d\x00\xff'", i), nasty[i%len(nasty)])
		tags[c] = b.write(c, ledger.Write{Leases: []ledger.LeaseWrite{{Run: k.Run, Nonce: k.Nonce, For: time.Second}}})
		keys = append(keys, k)
	}
	rnd.Shuffle(n, func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	keys[7].Nonce += "x"
	keys[8].Run += "x"
	keys = append(keys, keys[9]) // twice
	for i, r := range b.renew(time.Hour, keys...) {
		if want := i != 7 && i != 8; r.Found != want || r.Tag != tags[keys[i].Conversation] {
			b.Errorf("answer %d: %+v, want found %v and tag %q", i, r, want, tags[keys[i].Conversation])
		}
	}
	if got := b.renew(time.Hour); len(got) != 0 {
		b.Errorf("no question, %d answers", len(got))
	}
}
