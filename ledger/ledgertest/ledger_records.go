package ledgertest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
)

var recordTests = []test{
	{"results and texts come back byte for byte", exactRecords},
	{"ids of any bytes are what they are", exactIDs},
	{"namespaces do not touch", namespacesApart},
	{"a conversation that was made anew knows no old right", epochs},
	{"a crash that loses a Begin revives no older one", lostBegin},
	{"a run begins on another conversation once it has ended", runMoves},
	{"a superseded run learns it from its beat", beatsLearn},
	{"lists are complete, however long", lists},
	{"what must stay does not hide what is due", purgeGoesOn},
	{"a conversation that nobody uses is dropped", purgesHeads},
}

var texts = []string{"", "plain", "\x00", "a\x00b", "\xff\xfe", "\xc3\x28", "\u2028", "\ufffd", "\x00\x00YWJj", `"\'`, strings.Repeat("\x00\xff", 32*1024)}

func exactRecords(b *bench) {
	w, reader := b.worker(b.store), b.worker(b.other())
	h := w.begin("c", job("j"))
	for i, text := range texts {
		q := w.effect("c", "tag", fmt.Sprint("t", i))
		q.Summary, q.By = "summary "+text, "by "+text
		v := w.claim(h, q)
		s := outcome(v, fence.Committed, text)
		s.Reference = "ref " + fmt.Sprint(i) + text[:min(len(text), 100)]
		if got, _, err := h.Settle(b.ctx, s); err != nil || !got.Recorded {
			b.Fatalf("settle with %.20q: %+v, %v", text, got, err)
		}
		failed := w.claim(h, w.effect("c", "tag", fmt.Sprint("f", i)))
		w.settle(h, failed, fence.Failed, text)
		if ref, err := h.SaveProgress(b.ctx, []byte(text)); err != nil || ref != nil {
			b.Fatalf("save progress: %+v, %v", ref, err)
		}

		q.Claim = newID()
		replay, _, err := reader.Claim(b.ctx, "c", q)
		if err != nil || replay.Replay == nil || !bytes.Equal(replay.Replay.Result, []byte(text)) {
			b.Fatalf("replay of %.20q: %s, %v", text, verdict(replay), err)
		}
		if c := replay.Replay; c.Summary != q.Summary || c.By != q.By || c.Reference != s.Reference {
			b.Errorf("%.20q: summary %.30q, by %.30q, reference %.30q", text, c.Summary, c.By, c.Reference)
		}
		view, err := reader.Look(b.ctx, "c", fence.EffectRow(failed.Effect.ID), fence.RunRow(h.Delivery().Run))
		if err != nil {
			b.Fatal(err)
		}
		if e, _ := view.Rows[fence.EffectRow(failed.Effect.ID)].(*fence.Effect); e == nil || e.Calls[0].Error != text {
			b.Errorf("the error %.20q did not come back", text)
		}
		if r, _ := view.Rows[fence.RunRow(h.Delivery().Run)].(*fence.Run); r == nil || !bytes.Equal(r.Progress, []byte(text)) {
			b.Errorf("the progress %.20q did not come back", text)
		}
	}
}

// exactIDs: an id that came back changed would be another message, and be answered again.
func exactIDs(b *bench) {
	for i, id := range texts[1:10] {
		c := fmt.Sprint("c", i)
		w, other := b.worker(b.store), b.worker(b.other())
		h := w.begin(c, job("j"+id, id))
		v := w.claim(h, w.effect(c, "reply", "first", id))
		q := other.effect(c, "reply", "second", id)
		got, _, err := other.Claim(b.ctx, c, q)
		if err != nil || got.Refusal == nil || got.Refusal.Reason != fence.ReasonAlreadyAnswered {
			b.Errorf("message %q, with an answer under way: %s, %v", id, verdict(got), err)
		}
		w.settle(h, v, fence.Committed, "sent")
		got, _, err = other.Claim(b.ctx, c, q)
		if err != nil || got.Refusal == nil || got.Refusal.Reason != fence.ReasonAlreadyAnswered {
			b.Errorf("message %q, answered: %s, %v", id, verdict(got), err)
		}
		if where, found, err := other.FindRun(b.ctx, h.Delivery().Run); err != nil || !found || where != c {
			b.Errorf("run j%q lives on %q, %v", id, where, err)
		}
		if e, _, err := h.End(b.ctx, fence.EndSuccess); err != nil || e.Refusal != nil || len(e.Unanswered) != 0 {
			b.Errorf("end: %+v, %v", e, err)
		}
		if v, err := other.Cancel(b.ctx, fence.CancelRequest{Run: fence.RunKey{Queue: id, ID: id}, Why: id}); err != nil || !v.Cancelled {
			b.Errorf("cancel: %+v, %v", v, err)
		}
		gone := job("x")
		gone.Run = fence.RunKey{Queue: id, ID: id}
		if h, v, _, err := w.Begin(b.ctx, c, gone); err != nil || h != nil || v.Refusal == nil || v.Refusal.Reason != fence.ReasonCancelled {
			b.Errorf("begin of the cancelled run %q: %+v, %v", id, v, err)
		}
		view, err := other.Look(b.ctx, c, fence.RunRow(gone.Run))
		if r, _ := view.Rows[fence.RunRow(gone.Run)].(*fence.Run); err != nil || r == nil || r.CancelWhy != id {
			b.Errorf("why it was cancelled: %+v, %v", r, err)
		}
	}
}

func namespacesApart(b *bench) {
	in := func(ns string) func(*ledger.Options) { return func(o *ledger.Options) { o.Namespace = ns } }
	var ids []string
	for _, ns := range []string{"", "a", "a/b", "1:a/", "b", "%", "_"} {
		w := b.worker(b.store, in(ns))
		h := w.begin("c", job("j", "m"))
		if n := h.Delivery().ID.Number; n != 1 {
			b.Errorf("namespace %q: delivery %d", ns, n)
		}
		v := w.claim(h, w.effect("c", "reply", "m", "m"))
		ids = append(ids, v.Effect.ID)
		if _, err := w.Cancel(b.ctx, fence.CancelRequest{Run: job("gone").Run}); err != nil {
			b.Fatal(err)
		}
		open, _, err := w.Unresolved(b.ctx, 0, 100)
		if err != nil || len(open) != 1 || open[0].Conversation != "c" || open[0].Effect.ID != v.Effect.ID {
			b.Errorf("namespace %q: unresolved %+v, %v", ns, open, err)
		}
		inbound, _, err := w.OpenInbound(b.ctx, 0, 100)
		if err != nil || len(inbound) != 1 || inbound[0].Conversation != "c" {
			b.Errorf("namespace %q: open %+v, %v", ns, inbound, err)
		}
		hist, err := w.History(b.ctx, "c")
		if err != nil || len(hist.Runs) != 1 || len(hist.Effects) != 1 || hist.Head.Namespace != ns {
			b.Errorf("namespace %q: history %+v, %v", ns, hist, err)
		}
	}
	slices.Sort(ids)
	if n := len(slices.Compact(ids)); n != 7 {
		b.Errorf("7 effects have %d ids", n)
	}
}

func epochs(b *bench) {
	w, other := b.worker(b.store), b.worker(b.other())
	h := w.begin("c", job("j", "m"))
	granted := w.claim(h, w.effect("c", "reply", "m", "m"))
	seq := h.Delivery().Seen
	b.wait(fence.Millis(seq + 10))
	stored := ledger.ConversationKey("", "c")
	if !b.apply(stored, ledger.Write{Tag: b.load(stored, ledger.Query{}).Tag, Drop: true}).Applied {
		b.Fatal("not dropped")
	}
	if v, _, err := h.Claim(b.ctx, w.effect("c", "tag", "t")); err != nil || v.Refusal == nil || v.Refusal.Reason != fence.ReasonNoRun {
		b.Errorf("claim on a conversation that is gone: %s, %v", verdict(v), err)
	}
	h2 := other.begin("c", job("j2", "m"))
	if h2.Delivery().Seen <= seq {
		b.Errorf("seq went back from %d to %d", seq, h2.Delivery().Seen)
	}
	if v, _, err := h.Claim(b.ctx, w.effect("c", "tag", "t")); err != nil || v.Refusal == nil || v.Refusal.Reason != fence.ReasonNoRun {
		b.Errorf("claim of an old right on a new record: %s, %v", verdict(v), err)
	}
	if v, _, err := h.End(b.ctx, fence.EndSuccess); err != nil || v.Refusal == nil {
		b.Errorf("end of an old right on a new record: %+v, %v", v, err)
	}
	// The truth about the old call is told all the same.
	if s, _, err := h.Settle(b.ctx, outcome(granted, fence.Committed, "sent")); err != nil || !s.Recorded || !s.Vanished {
		b.Errorf("settle: %+v, %v", s, err)
	}
	q := other.effect("c", "reply", "m", "m")
	if v, _, err := h2.Claim(b.ctx, q); err != nil || v.Replay == nil {
		b.Errorf("what was settled is not replayed: %s, %v", verdict(v), err)
	}
}

// lostBegin: a Begin is not flushed. Lost in a crash, its number is given out again, and
// nothing but the tag and the nonce tells the two deliveries apart.
func lostBegin(b *bench) {
	for round := range 5 {
		m := Crashable(func() ledger.Store { return b.open(b.t) })
		w := b.worker(m)
		if _, err := w.Stamp(b.ctx, "c"); err != nil { // flushed
			b.Fatal(err)
		}
		first := w.begin("c", job("j", "m"))
		if err := m.Crash(); err != nil {
			b.Fatal(err)
		}
		other := b.worker(m)
		second := other.begin("c", job("j", "m"))
		if a, o := first.Delivery().ID, second.Delivery().ID; a.Number != o.Number || a.Nonce == o.Nonce {
			b.Fatalf("round %d: deliveries %+v and %+v: the test proves nothing", round, a, o)
		}
		if v, _, err := first.Claim(b.ctx, w.effect("c", "reply", "m", "m")); err != nil || v.Call != nil || v.Refusal == nil || !v.Refusal.Stale {
			b.Errorf("round %d: claim of the delivery that was lost: %s, %v", round, verdict(v), err)
		}
		if v, _, err := second.Claim(b.ctx, other.effect("c", "reply", "m", "m")); err != nil || v.Call == nil {
			b.Errorf("round %d: claim of the delivery that lives: %s, %v", round, verdict(v), err)
		}
	}
}

func runMoves(b *bench) {
	w, other := b.worker(b.store), b.worker(b.other())
	q := job("j", "m")
	h := w.begin("c1", q)
	moved := q
	moved.Nonce, moved.Digest = newID(), "other work"
	got, v, _, err := other.Begin(b.ctx, "c2", moved)
	if err != nil || got != nil || v.Refusal == nil || v.Refusal.Reason != fence.ReasonConversationMismatch {
		b.Errorf("begin elsewhere while active: %+v, %v", v, err)
	}
	if v, _, err := h.End(b.ctx, fence.EndDiscarded); err != nil || v.Refusal != nil {
		b.Fatalf("end: %+v, %v", v, err)
	}
	h2 := other.begin("c2", moved)
	if n := h2.Delivery().ID.Number; n != 2 {
		b.Errorf("delivery %d on the new conversation: numbers restarted", n)
	}
	if where, _, err := w.FindRun(b.ctx, q.Run); err != nil || where != "c2" {
		b.Errorf("the run lives on %q, %v", where, err)
	}
	// The record that stayed behind is purged without the directory forgetting the run.
	soon := b.worker(b.store, func(o *ledger.Options) { o.Rules.Retention = 0 })
	if _, err := soon.Purge(b.ctx, 100); err != nil {
		b.Fatal(err)
	}
	if where, _, err := w.FindRun(b.ctx, q.Run); err != nil || where != "c2" {
		b.Errorf("after a purge the run lives on %q, %v", where, err)
	}
	if v, err := w.Cancel(b.ctx, fence.CancelRequest{Run: q.Run, By: "op"}); err != nil || !v.Cancelled {
		b.Errorf("cancel: %+v, %v", v, err)
	}
	if v, _, err := h2.Claim(b.ctx, other.effect("c2", "tag", "t")); err != nil || v.Refusal == nil || v.Refusal.Reason != fence.ReasonCancelled {
		b.Errorf("claim of the cancelled run: %s, %v", verdict(v), err)
	}
}

func beatsLearn(b *bench) {
	for _, same := range []bool{true, false} {
		c := fmt.Sprint("c", same)
		w := b.worker(b.store)
		newer := w
		if !same {
			newer = b.worker(b.other())
		}
		h := w.begin(c, ordered(job(c+"1"), 1))
		moved := func() bool {
			r, err := w.Renew(b.ctx, []ledger.LeaseKey{h.Lease()}, time.Minute)
			if err != nil || !r[0].Found {
				b.Fatalf("renew: %+v, %v", r, err)
			}
			return h.Moved(b.ctx, r[0].Tag)
		}
		beat := func() fence.BeatVerdict {
			v, _, err := h.Beat(b.ctx, false)
			if err != nil {
				b.Fatal(err)
			}
			return v
		}
		if ref, err := h.SaveProgress(b.ctx, []byte("x")); err != nil || ref != nil {
			b.Fatalf("%+v, %v", ref, err)
		}
		pending := w.claim(h, w.effect(c, "tag", "b"))
		w.once(h, w.effect(c, "tag", "a"), "done")
		if moved() {
			b.Errorf("same process %v: its own writes count as somebody else's", same)
		}
		if _, err := newer.Report(b.ctx, c, fence.ReportRequest{ID: "r", Intent: "note"}); err != nil {
			b.Fatal(err)
		}
		if !moved() || beat().Refusal != nil {
			b.Errorf("same process %v: a report is not noticed, or took the right away", same)
		}
		if moved() {
			b.Errorf("same process %v: what a beat has judged is news again", same)
		}
		newer.begin(c, ordered(job(c+"2"), 2))
		if !moved() {
			b.Errorf("same process %v: a newer run is not noticed", same)
		}
		// What a run may do without its right tells nothing about it.
		w.settle(h, pending, fence.Committed, "done")
		if v, _, err := h.Claim(b.ctx, w.effect(c, "tag", "c")); err != nil || v.Refusal == nil {
			b.Errorf("same process %v: claim of a superseded run: %s, %v", same, verdict(v), err)
		}
		if !moved() {
			b.Errorf("same process %v: a newer run is not noticed any more", same)
		}
		if v := beat(); v.Refusal == nil || v.Refusal.Reason != fence.ReasonSuperseded {
			b.Errorf("same process %v: beat %+v, want superseded", same, v)
		}
		if !moved() {
			b.Errorf("same process %v: a run that lost its right is told so once only", same)
		}
	}
}

func lists(b *bench) {
	n := 1100 // more than two pages
	if brief() {
		n = 30
	}
	w := b.worker(b.store)
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("m%04d", i)
	}
	h := w.begin("c", job("j", ids...))
	for i := range 30 {
		w.claim(h, w.effect("c", "tag", fmt.Sprint(i)))
	}
	hist, err := w.History(b.ctx, "c")
	if err != nil || len(hist.Inbound) != n || len(hist.Effects) != 30 || len(hist.Runs) != 1 {
		b.Errorf("history: %d inbound, %d effects, %d runs, %v", len(hist.Inbound), len(hist.Effects), len(hist.Runs), err)
	}
	for i := 1; i < len(hist.Effects); i++ {
		if hist.Effects[i].Calls[0].Fence <= hist.Effects[i-1].Calls[0].Fence {
			b.Errorf("history: effect %d was claimed before the one in front of it", i)
		}
	}
	for _, limit := range []int{0, 1, 7, 2000} {
		want := n
		if limit > 0 {
			want = min(n, limit)
		}
		open, _, err := w.OpenInbound(b.ctx, 0, limit)
		if err != nil || len(open) != want {
			b.Errorf("at most %d open messages: %d, %v", limit, len(open), err)
		}
		seen := map[string]bool{}
		for _, m := range open {
			seen[m.Inbound.ID] = true
		}
		if len(seen) != want {
			b.Errorf("at most %d open messages: %d different ones", limit, len(seen))
		}
	}
	v, _, err := h.CatchUp(b.ctx)
	if err != nil || v.OpenCount != n || len(v.Open) != min(n, fence.MaxOpen) {
		b.Errorf("catch up: %d open, %d shown, %v", v.OpenCount, len(v.Open), err)
	}
	if open, _, err := w.Unresolved(b.ctx, seconds(60), 0); err != nil || len(open) != 0 {
		b.Errorf("unresolved for a minute: %d, %v", len(open), err)
	}
	if open, _, err := w.Unresolved(b.ctx, 0, 0); err != nil || len(open) != 30 {
		b.Errorf("unresolved: %d, %v", len(open), err)
	}
}

func purgeGoesOn(b *bench) {
	w := b.worker(b.store, func(o *ledger.Options) { o.Rules.Retention = 1 })
	// Held back: messages that an unresolved effect has taken, due before all others.
	var held []string
	for i := range 40 {
		held = append(held, fmt.Sprint("m", i))
	}
	h := w.begin("held", job("held", held...))
	w.claim(h, w.effect("held", "reply", "all", held...))
	w.begin("live", job("live"))
	now := b.load("c", ledger.Query{}).Now
	b.wait(now + 5)
	for i := range 20 {
		c := fmt.Sprint("c", i)
		h := w.begin(c, job(c))
		w.once(h, w.effect(c, "tag", "t"), "done")
		if v, _, err := h.End(b.ctx, fence.EndSuccess); err != nil || v.Refusal != nil {
			b.Fatalf("end: %+v, %v", v, err)
		}
	}
	b.wait(b.load("c", ledger.Query{}).Now + 5)
	var purged purgeTotal
	purger := b.worker(b.other()) // what it keeps it looks at again in days
	for range 60 {
		p, err := purger.Purge(b.ctx, 5)
		if err != nil {
			b.Fatal(err)
		}
		if n := p.Runs + p.Effects + p.Others; n > 5 {
			b.Errorf("a purge of at most 5 rows deleted %d", n)
		}
		purged.add(p)
	}
	if purged.Runs != 20 || purged.Effects != 20 || purged.Conversations != 20 {
		b.Errorf("purged %+v, want 20 runs, effects and conversations", purged)
	}
	hist, err := w.History(b.ctx, "held")
	if err != nil || len(hist.Inbound) != 40 || len(hist.Effects) != 1 || len(hist.Runs) != 1 {
		b.Errorf("what had to stay: %d inbound, %d effects, %d runs, %v", len(hist.Inbound), len(hist.Effects), len(hist.Runs), err)
	}
	// Nor do conversations that have nothing left but what is kept for ever.
	for i := range 30 {
		c := fmt.Sprint("forever", i)
		q := w.effect(c, "tag", "t")
		q.Forever = true
		v, _, err := w.Claim(b.ctx, c, q)
		if err != nil || v.Call == nil {
			b.Fatalf("claim: %s, %v", verdict(v), err)
		}
		if s, _, err := w.Settle(b.ctx, c, outcome(v, fence.Committed, "done")); err != nil || !s.Recorded {
			b.Fatalf("settle: %+v, %v", s, err)
		}
	}
	b.wait(b.load("c", ledger.Query{}).Now + 5)
	if _, err := w.Stamp(b.ctx, "last"); err != nil {
		b.Fatal(err)
	}
	b.wait(b.load("c", ledger.Query{}).Now + 5)
	for range 20 {
		if _, err := purger.Purge(b.ctx, 2); err != nil {
			b.Fatal(err)
		}
	}
	if b.load(ledger.ConversationKey("", "last"), ledger.Query{}).Tag != "" {
		b.Error("what is kept for ever hides a conversation that is due")
	}
	if h, err := w.History(b.ctx, "forever7"); err != nil || len(h.Effects) != 1 {
		b.Errorf("what is kept for ever: %+v, %v", h, err)
	}
	// It comes to an end although something is left that is due.
	for i := 0; ; i++ {
		p, err := purger.Purge(b.ctx, 5)
		if err != nil {
			b.Fatal(err)
		}
		if !p.More {
			break
		}
		if i == 100 {
			b.Fatal("there is always more")
		}
	}
}

func purgesHeads(b *bench) {
	w := b.worker(b.store, func(o *ledger.Options) { o.Rules.Retention = 1 })
	if _, err := w.Stamp(b.ctx, "c"); err != nil {
		b.Fatal(err)
	}
	live := w.begin("live", job("j"))
	b.wait(b.load("c", ledger.Query{}).Now + 5)
	if p, err := w.Purge(b.ctx, 10); err != nil || p.Conversations != 1 {
		b.Errorf("purged %+v, %v, want the conversation of a stamp", p, err)
	}
	if b.load(ledger.ConversationKey("", "c"), ledger.Query{}).Tag != "" {
		b.Error("the conversation of a stamp is still there")
	}
	if v, _, err := live.Claim(b.ctx, w.effect("live", "tag", "t")); err != nil || v.Call == nil {
		b.Errorf("a live run: %s, %v", verdict(v), err)
	}
}
