package ledgertest

import (
	"fmt"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
)

var costTests = []test{
	{"an effect costs two calls, one of them flushed", costOfOnce},
	{"a replay and a refusal cost one call", costOfReplay},
	{"a Begin costs one call or two, an End one", costOfBegin},
	{"one call keeps a thousand runs alive", costOfBeats},
	{"ten thousand records cost what ten do", costOfHistory},
	{"the head stays small", headStaysSmall},
}

// counted starts a process whose calls are counted.
func (b *bench) counted() (*worker, *Counter) {
	store, n := Counting(b.store)
	w := b.worker(store)
	if _, err := w.Stamp(b.ctx, "warm"); err != nil { // now it knows the store's clock
		b.Fatal(err)
	}
	n.Take()
	return w, n
}

func costOfOnce(b *bench) {
	w, n := b.counted()
	h := w.begin("c", job("j", "m"))
	for i := range 100 {
		n.Take()
		v := w.claim(h, w.effect("c", "reply", fmt.Sprint("m", i)))
		if got := n.Take(); got.Calls() != 1 || got.Durable != 1 || got.RowsIn > 2 {
			b.Fatalf("claim %d: %v", i, got)
		}
		w.settle(h, v, fence.Committed, "sent")
		if got := n.Take(); got.Calls() != 1 || got.Durable != 0 || got.RowsIn > 4 {
			b.Fatalf("settle %d: %v", i, got)
		}
	}
}

func costOfReplay(b *bench) {
	w, n := b.counted()
	h := w.begin("c", job("j"))
	q := w.effect("c", "reply", "m")
	w.once(h, q, "sent")
	again := w.effect("c", "reply", "m")
	n.Take()
	if v, _, err := h.Claim(b.ctx, again); err != nil || v.Replay == nil || string(v.Replay.Result) != "sent" {
		b.Fatalf("replay: %s, %v", verdict(v), err)
	}
	if got := n.Take(); got.Calls() != 1 {
		b.Errorf("a replay of its own effect: %v", got)
	}
	// Another run, in a process that has never seen the effect.
	w2, n2 := b.counted()
	h2 := w2.begin("c", job("j2"))
	n2.Take()
	if v, _, err := h2.Claim(b.ctx, again); err != nil || v.Replay == nil {
		b.Fatalf("replay: %s, %v", verdict(v), err)
	}
	if got := n2.Take(); got.Calls()-got.Blind != 1 {
		b.Errorf("a replay of a stranger's effect: %v", got)
	}
	pending := w.effect("c", "tag", "vip")
	w.claim(h, pending)
	n2.Take()
	pending.Claim = newID()
	if v, _, err := h2.Claim(b.ctx, pending); err != nil || v.Refusal == nil || v.Refusal.Reason != fence.ReasonInFlight {
		b.Fatalf("in flight: %s, %v", verdict(v), err)
	}
	if got := n2.Take(); got.Calls()-got.Blind != 1 {
		b.Errorf("a refusal: %v", got)
	}
}

func costOfBegin(b *bench) {
	w, n := b.counted()
	w.begin("new", job("j1", "m"))
	if got := n.Take(); got.Calls() != 1 || got.Durable != 0 {
		b.Errorf("Begin on a new conversation: %v", got)
	}
	w.begin("new", job("j1", "m"))
	if got := n.Take(); got.Calls()-got.Blind > 2 || got.Durable != 0 {
		b.Errorf("redelivery in the same process: %v", got)
	}
	w2, n2 := b.counted()
	h := w2.begin("new", job("j1", "m"))
	if got := n2.Take(); got.Calls()-got.Blind > 2 || got.Locks != 0 {
		b.Errorf("redelivery in another process: %v", got)
	}
	w2.once(h, w2.effect("new", "reply", "m", "m"), "sent")
	n2.Take()
	if v, _, err := h.End(b.ctx, fence.EndSuccess); err != nil || v.Refusal != nil {
		b.Fatalf("end: %+v, %v", v, err)
	}
	if got := n2.Take(); got.Calls() != 1 || got.Durable != 1 {
		b.Errorf("End: %v", got)
	}
}

func costOfBeats(b *bench) {
	w, n := b.counted()
	var leases []ledger.LeaseKey
	var handles []*ledger.Handle
	runs := 1000
	if brief() {
		runs = 100
	}
	for i := range runs {
		h := w.begin(fmt.Sprint("c", i), job(fmt.Sprint("j", i)))
		handles, leases = append(handles, h), append(leases, h.Lease())
	}
	n.Take()
	renewed, err := w.Renew(b.ctx, leases, time.Minute)
	if err != nil {
		b.Fatal(err)
	}
	for i, r := range renewed {
		if !r.Found || handles[i].Moved(b.ctx, r.Tag) {
			b.Fatalf("run %d: %+v", i, r)
		}
	}
	if got := n.Take(); got.Calls() != 1 {
		b.Errorf("a beat of %d runs: %v", runs, got)
	}
}

// past gives a conversation n settled effects and n runs that ended, beside twelve effects done
// in the ordinary way.
func (b *bench) past(conversation string, n int) {
	b.Helper()
	w := b.worker(b.store)
	old := job("old on " + conversation)
	h := w.begin(conversation, ordered(old, 1))
	var e string
	for i := range 12 {
		q := w.effect(conversation, "note", fmt.Sprint("past ", i))
		w.once(h, q, "done")
		e = fence.EffectRow(q.Effect)
	}
	if _, _, err := h.End(b.ctx, fence.EndSuccess); err != nil {
		b.Fatal(err)
	}
	stored := ledger.ConversationKey("", conversation)
	snap := b.load(stored, ledger.Query{Keys: []string{e, fence.RunRow(old.Run)}})
	change := ledger.Write{Tag: snap.Tag, NewTag: newID(), Head: snap.Head}
	for _, r := range snap.Rows {
		body, err := r.Body()
		if err != nil {
			b.Fatal(err)
		}
		for i := range n {
			ix := r.Index
			if ix.Landed > 0 {
				ix.Landed = int64(i + 1)
			}
			change.Put = append(change.Put, ledger.NewRow(fmt.Sprintf("%s.%d", r.Key, i), ix, body))
		}
	}
	if len(change.Put) != 2*n || !b.apply(stored, change).Applied {
		b.Fatal("the past was refused")
	}
}

func costOfHistory(b *bench) {
	long := 10_000
	if brief() {
		long = 1000
	}
	var first []Counts
	for _, size := range []int{10, long} {
		c := fmt.Sprint("c", size)
		b.past(c, size)
		w, n := b.counted()
		var counts []Counts
		took := func() {
			counts = append(counts, n.Take())
		}
		h := w.begin(c, ordered(job("new on "+c, "m1"), 2))
		took()
		if _, _, err := h.CatchUp(b.ctx); err != nil {
			b.Fatal(err)
		}
		took()
		v := w.claim(h, w.effect(c, "reply", "m1", "m1"))
		took()
		w.settle(h, v, fence.Committed, "sent")
		took()
		if v, _, err := h.Claim(b.ctx, w.effect(c, "reply", "m1", "m1")); err != nil || v.Replay == nil {
			b.Fatalf("replay: %s, %v", verdict(v), err)
		}
		took()
		if _, err := w.Look(b.ctx, c, "e/nothing"); err != nil {
			b.Fatal(err)
		}
		took()
		if v, _, err := h.End(b.ctx, fence.EndSuccess); err != nil || v.Refusal != nil {
			b.Fatalf("end: %+v, %v", v, err)
		}
		took()
		if first == nil {
			first = counts
			continue
		}
		for i, name := range []string{"begin", "catch up", "claim", "settle", "replay", "look", "end"} {
			if counts[i] != first[i] {
				b.Errorf("%s with 10 settled effects and ended runs: %v\nwith %d: %v", name, first[i], size, counts[i])
			}
		}
	}
}

func headStaysSmall(b *bench) {
	w := b.worker(b.store)
	sizes := map[int]int{}
	for i := range 120 {
		h := w.begin("c", ordered(job(fmt.Sprintf("job-%04d", i), fmt.Sprintf("m%04d", i)), int64(1000+i)))
		q := w.effect("c", "reply", fmt.Sprintf("m%04d", i), fmt.Sprintf("m%04d", i))
		q.Summary = "a summary of some length, as people write them"
		w.once(h, q, "sent")
		if _, _, err := h.End(b.ctx, fence.EndSuccess); err != nil {
			b.Fatal(err)
		}
		head, err := b.load(ledger.ConversationKey("", "c"), ledger.Query{}).Head.Body()
		if err != nil {
			b.Fatal(err)
		}
		sizes[i] = len(head)
	}
	if sizes[119] > sizes[20]+64 || sizes[119] > 6*1024 {
		b.Errorf("the head is %d bytes after 20 effects and %d after 120", sizes[20], sizes[119])
	}
}
