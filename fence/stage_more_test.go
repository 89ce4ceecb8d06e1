package fence_test

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/fencedrun/fencedrun/fence"
)

// The commands that end, look after and look at things.

func (s *stage) end(a *args) string {
	conv := a.text("conv", "c")
	q := fence.EndRequest{Identity: s.w.identity(conv), Delivery: s.delivery(a), Reason: fence.EndReason(a.text("reason", string(fence.EndSuccess)))}
	v, d := decide(s.w, conv, fence.RunKey{}, func(view fence.View) (fence.EndVerdict, fence.Change) { return s.w.rules.End(view, q) })
	return s.tell(v, d)
}

func (s *stage) unfinished(a *args) string {
	conv := a.text("conv", "c")
	q := fence.EndRequest{Identity: s.w.identity(conv), Delivery: s.delivery(a)}
	v, d := decide(s.w, conv, fence.RunKey{}, func(view fence.View) (*fence.Refusal, fence.Change) { return s.w.rules.Unfinished(view, q) })
	return s.tell(v, d)
}

func (s *stage) release(a *args) string {
	conv := a.text("conv", "c")
	q := fence.ReleaseRequest{Identity: s.w.identity(conv), Delivery: s.delivery(a), Parked: fence.Reason(a.text("parked", ""))}
	released, d := decide(s.w, conv, fence.RunKey{}, func(view fence.View) (bool, fence.Change) { return s.w.rules.Release(view, q) })
	if !released {
		return s.say("nothing to release", d)
	}
	return s.say("released", d)
}

func (s *stage) cancel(a *args) string {
	conv := a.text("conv", "c")
	q := fence.CancelRequest{Identity: s.w.identity(conv), Run: a.run(), By: a.text("by", "ann"), Why: a.text("why", ""), Dismiss: a.has("dismiss")}
	v, d := decide(s.w, conv, fence.RunKey{}, func(view fence.View) (fence.CancelVerdict, fence.Change) { return s.w.rules.Cancel(view, q) })
	return s.tell(v, d)
}

// bury cancels a run that the directory does not know.
func (s *stage) bury(a *args) string {
	key := a.run()
	if s.w.homes[key].Found {
		panic(wrongf("the directory knows run %s", key))
	}
	s.w.homes[key] = fence.Home{Found: true, Tombstone: fence.Tombstone{At: s.w.now, By: a.text("by", "ann"), Why: a.text("why", "")}}
	return "a tombstone waits for run " + key.String()
}

// forget takes a run's entry out of the directory.
func (s *stage) forget(a *args) string {
	delete(s.w.homes, a.run())
	return "ok"
}

func (s *stage) report(a *args) string {
	conv := a.text("conv", "c")
	q := fence.ReportRequest{
		Identity: s.w.identity(conv), ID: a.need("id"), Intent: a.text("intent", ""), Answers: a.list("answers"),
		Reference: a.text("reference", ""), Summary: a.text("summary", ""), By: a.text("by", "helpdesk"),
	}
	if v := a.text("effect", ""); v != "" {
		q.Effect = effectOf(v).id
	}
	v, d := decide(s.w, conv, fence.RunKey{}, func(view fence.View) (fence.ReportVerdict, fence.Change) { return s.w.rules.Report(view, q) })
	return s.tell(v, d)
}

func (s *stage) dismiss(a *args) string {
	conv := a.text("conv", "c")
	q := fence.DismissRequest{Identity: s.w.identity(conv), IDs: a.list("ids"), Why: a.text("why", "")}
	if a.has("run") {
		q.Delivery = s.delivery(a)
	}
	v, d := decide(s.w, conv, fence.RunKey{}, func(view fence.View) (fence.DismissVerdict, fence.Change) { return s.w.rules.Dismiss(view, q) })
	return s.tell(v, d)
}

func (s *stage) resolve(a *args) string {
	conv := a.text("conv", "c")
	q := fence.ResolveRequest{
		Identity: s.w.identity(conv), Effect: effectOf(a.need("effect")).id, Happened: a.oneOf("happened", "denied") == "happened",
		By: a.text("by", "ann"), Note: a.text("note", ""), Reference: a.text("reference", ""), Force: a.has("force"),
	}
	if v := a.text("result", ""); v != "" {
		q.Result, q.HasResult = []byte(v), true
	}
	v, d := decide(s.w, conv, fence.RunKey{}, func(view fence.View) (fence.ResolveVerdict, fence.Change) { return s.w.rules.Resolve(view, q) })
	return s.tell(v, d)
}

func (s *stage) stamp(a *args) string {
	conv := a.text("conv", "c")
	id := s.w.identity(conv)
	n, d := decide(s.w, conv, fence.RunKey{}, func(view fence.View) (int64, fence.Change) { return s.w.rules.Stamp(view, id) })
	s.stamps[a.need("as")] = n
	return s.say("stamp "+strconv.FormatInt(n, 10), d)
}

func (s *stage) beat(a *args) string {
	conv := a.text("conv", "c")
	q := fence.BeatRequest{Identity: s.w.identity(conv), Delivery: s.delivery(a), Rejoin: a.has("rejoin")}
	v, d := decide(s.w, conv, fence.RunKey{}, func(view fence.View) (fence.BeatVerdict, fence.Change) { return s.w.rules.Beat(view, q) })
	return s.tell(v, d)
}

// renew extends a lease beside the conversation's tag, as every beat does.
func (s *stage) renew(a *args) string {
	d := s.delivery(a)
	c := s.w.conv(a.text("conv", "c"))
	id := fence.LeaseID{Run: fence.RunRow(d.Run), Nonce: d.ID.Nonce}
	if c.leases[id] <= s.w.now {
		return "no lease to renew"
	}
	c.leases = maps.Clone(c.leases)
	c.leases[id] = s.w.now + s.w.rules.Lease
	return "renewed"
}

func (s *stage) progress(a *args) string {
	conv := a.text("conv", "c")
	q := fence.ProgressRequest{Identity: s.w.identity(conv), Delivery: s.delivery(a), Value: []byte(a.need("value"))}
	v, d := decide(s.w, conv, fence.RunKey{}, func(view fence.View) (*fence.Refusal, fence.Change) { return s.w.rules.SaveProgress(view, q) })
	if v == nil {
		return s.say("saved", d)
	}
	return s.tell(v, d)
}

// purge offers what is due, oldest first, at most limit rows.
func (s *stage) purge(a *args) string {
	conv := a.text("conv", "c")
	id := s.w.identity(conv)
	due := s.w.due(conv, a.number("limit", 1000))
	v, d := decide(s.w, conv, fence.RunKey{}, func(view fence.View) (fence.PurgeVerdict, fence.Change) {
		return s.w.rules.Purge(view, fence.PurgeRequest{Identity: id, Due: due})
	})
	return s.tell(v, d)
}

// due lists the rows that a store's index offers for purging.
func (w *world) due(conv string, limit int) []fence.Record {
	c := w.conv(conv)
	var due []fence.Record
	for _, key := range sorted(c.rows) {
		if at := c.rows[key].Index().Due; at > 0 && at <= w.now {
			due = append(due, c.rows[key])
		}
	}
	slices.SortStableFunc(due, func(a, b fence.Record) int { return cmp.Compare(a.Index().Due, b.Index().Due) })
	return due[:min(len(due), limit)]
}

// lose takes a whole conversation away, or one effect's row.
func (s *stage) lose(a *args) string {
	conv := a.text("conv", "c")
	v := a.text("effect", "")
	if v == "" {
		delete(s.w.convs, conv)
		return "the conversation is lost"
	}
	key := fence.EffectRow(effectOf(v).id)
	c := s.w.conv(conv)
	c.rows = maps.Clone(c.rows)
	delete(c.rows, key)
	s.w.lost[key] = true
	return "the row is lost"
}

// show prints the conversation, or one part of it, as the ledger has it.
func (s *stage) show(a *args) string {
	conv := a.text("conv", "c")
	c := s.w.conv(conv)
	if a.has("delivery") {
		return fence.DescribeAt(s.delivery(a), s.w.now)
	}
	var keys []string
	switch {
	case a.has("run"):
		keys = []string{fence.RunRow(a.run())}
	case a.has("effect"):
		keys = []string{fence.EffectRow(effectOf(a.need("effect")).id)}
	case a.has("messages"):
		for _, id := range a.list("messages") {
			keys = append(keys, fence.InboundRow(id))
		}
	case a.has("head"):
		return fence.DescribeAt(c.head, s.w.now)
	default:
		return fence.DescribeAt(s.w.state(conv), s.w.now)
	}
	lines := make([]string, len(keys))
	for i, key := range keys {
		lines[i] = "no such record"
		if rec := c.rows[key]; rec != nil {
			lines[i] = fence.DescribeAt(rec, s.w.now)
		}
	}
	return strings.Join(lines, "\n")
}
