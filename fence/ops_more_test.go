package fence_test

import (
	"fmt"
	"maps"

	"github.com/fencedrun/fencedrun/fence"
)

func (s *story) cancel() error {
	if !s.c.chance(40) {
		return nil
	}
	i := s.c.next(len(jobs))
	q := fence.CancelRequest{Identity: s.w.identity("c"), Run: jobKey(i), By: "ann", Dismiss: s.c.chance(30)}
	if home := s.w.homes[q.Run]; !home.Found {
		s.w.homes[q.Run] = fence.Home{Found: true, Tombstone: fence.Tombstone{At: s.w.now, By: "ann"}}
		s.note("%6d bury %d", s.w.now, i)
		return nil
	} else if home.Where == "" {
		return nil
	}
	v, err := do(s, fmt.Sprintf("cancel %d", i), fence.RunKey{}, func(view fence.View) (fence.CancelVerdict, fence.Change) { return s.w.rules.Cancel(view, q) })
	if err == nil && !v.Cancelled && (v.Run == nil || v.Run.State != fence.RunEnded) {
		return fmt.Errorf("run %d is not cancelled", i)
	}
	return err
}

// report is a stranger's write, or the echo of a call that applied.
func (s *story) report() error {
	q := fence.ReportRequest{Identity: s.w.identity("c"), ID: fmt.Sprintf("w%d", s.c.next(4)), By: "desk"}
	call := s.oracle.call(s.c)
	if call != nil && call.applied && !call.retired && s.c.chance(50) {
		q.ID = "echo-" + call.q.Claim
		q.Effect = call.q.Effect
		if call.reference != "" {
			q.Reference = call.reference
		}
	} else {
		q.Intent = [...]string{"reply", "", "note"}[s.c.next(3)]
		q.Answers = [...][]string{nil, {"m1"}, {"m2"}, {"m1", "m3"}}[s.c.next(4)]
		if q.Intent == "note" {
			q.Answers = nil
		}
	}
	v, err := do(s, fmt.Sprintf("report %s %s answers %v", q.ID, q.Intent, q.Answers), fence.RunKey{}, func(view fence.View) (fence.ReportVerdict, fence.Change) {
		return s.w.rules.Report(view, q)
	})
	if err != nil {
		return err
	}
	return s.oracle.reported(q, v)
}

// resolve is a person who knows the truth, and sometimes is mistaken.
func (s *story) resolve() error {
	call := s.oracle.call(s.c)
	if call == nil {
		return nil
	}
	happened := s.oracle.applied(call.q.Effect)
	if s.c.chance(10) {
		happened = !happened
		s.oracle.lied[call.q.Effect] = true
	}
	q := fence.ResolveRequest{
		Identity: s.w.identity("c"), Effect: call.q.Effect, Happened: happened, By: "ann", Force: s.c.chance(20),
	}
	v, err := do(s, fmt.Sprintf("resolve %s: happened %v, force %v", q.Effect, q.Happened, q.Force), fence.RunKey{}, func(view fence.View) (fence.ResolveVerdict, fence.Change) {
		return s.w.rules.Resolve(view, q)
	})
	if err != nil {
		return err
	}
	return s.oracle.resolved(q, v)
}

func (s *story) beat() error {
	d := s.delivery()
	if d == nil {
		return nil
	}
	q := fence.BeatRequest{Identity: s.w.identity("c"), Delivery: d, Rejoin: s.c.chance(50)}
	_, err := do(s, "beat "+who(d), fence.RunKey{}, func(view fence.View) (fence.BeatVerdict, fence.Change) { return s.w.rules.Beat(view, q) })
	return err
}

func (s *story) renew() error {
	d := s.delivery()
	if d == nil {
		return nil
	}
	c := s.w.conv("c")
	id := fence.LeaseID{Run: fence.RunRow(d.Run), Nonce: d.ID.Nonce}
	if c.leases[id] > s.w.now {
		c.leases = maps.Clone(c.leases)
		c.leases[id] = s.w.now + s.w.rules.Lease
		s.note("%6d renew %s", s.w.now, who(d))
	}
	return nil
}

func (s *story) dismiss() error {
	q := fence.DismissRequest{Identity: s.w.identity("c"), IDs: []string{[...]string{"m1", "m2", "m3"}[s.c.next(3)]}}
	if s.c.chance(50) {
		q.Delivery = s.delivery()
	}
	if !s.c.chance(30) {
		return nil
	}
	_, err := do(s, fmt.Sprintf("dismiss %v", q.IDs), fence.RunKey{}, func(view fence.View) (fence.DismissVerdict, fence.Change) { return s.w.rules.Dismiss(view, q) })
	return err
}

func (s *story) stampIt() error {
	id := s.w.identity("c")
	n, err := do(s, "stamp", fence.RunKey{}, func(view fence.View) (int64, fence.Change) { return s.w.rules.Stamp(view, id) })
	if n <= s.stamp {
		return fmt.Errorf("stamp %d after %d", n, s.stamp)
	}
	s.stamp = n
	s.oracle.stamped()
	return err
}

func (s *story) progress() error {
	d := s.delivery()
	if d == nil {
		return nil
	}
	q := fence.ProgressRequest{Identity: s.w.identity("c"), Delivery: d, Value: []byte("p")}
	_, err := do(s, "progress "+who(d), fence.RunKey{}, func(view fence.View) (*fence.Refusal, fence.Change) { return s.w.rules.SaveProgress(view, q) })
	return err
}

func (s *story) purge() error {
	if s.c.chance(20) {
		s.w.now += s.w.rules.Retention / 2
	}
	id := s.w.identity("c")
	due := s.w.due("c", 1+s.c.next(20))
	_, err := do(s, "purge", fence.RunKey{}, func(view fence.View) (fence.PurgeVerdict, fence.Change) {
		return s.w.rules.Purge(view, fence.PurgeRequest{Identity: id, Due: due})
	})
	s.oracle.purged()
	s.w.now++ // what begins anew does so later
	return err
}

// finally brings the story to an end: leases and deadlines pass, a person resolves truthfully
// what is unknown. Then a new run must be able to answer every message that is open: a fence
// that refuses everything has no duplicates either.
func (s *story) finally() error {
	s.w.now += 10 * 60 * 1000
	for _, call := range s.oracle.calls {
		q := fence.ResolveRequest{Identity: s.w.identity("c"), Effect: call.q.Effect, Happened: s.oracle.applied(call.q.Effect), By: "ann"}
		v, err := do(s, "finally resolve "+call.q.Effect, fence.RunKey{}, func(view fence.View) (fence.ResolveVerdict, fence.Change) { return s.w.rules.Resolve(view, q) })
		if err != nil {
			return err
		}
		if err := s.oracle.resolved(q, v); err != nil {
			return err
		}
	}
	if head := s.w.conv("c").head; head != nil && len(head.Unresolved) > 0 {
		return fmt.Errorf("unresolved though everything was: %s", fence.Describe(head))
	}
	b := fence.BeginRequest{Identity: s.w.identity("c"), Run: fence.RunKey{Queue: "q", ID: "last"}, Mode: fence.Exclusive, Reads: fence.AfterBegin, Digest: "p"}
	begun, err := do(s, "last begin", b.Run, func(view fence.View) (fence.BeginVerdict, fence.Change) { return s.w.rules.Begin(view, b) })
	if err != nil || begun.Delivery == nil {
		return fmt.Errorf("a new run cannot begin: %s: %w", fence.Describe(begun), err)
	}
	c := fence.CatchUpRequest{Identity: s.w.identity("c"), Delivery: begun.Delivery}
	view, err := do(s, "last catch up", fence.RunKey{}, func(view fence.View) (fence.CatchUpVerdict, fence.Change) { return s.w.rules.CatchUp(view, c) })
	if err != nil {
		return err
	}
	d := view.Delivery
	for _, in := range view.Open {
		e := effectOf("reply:last:" + in.ID)
		q := fence.ClaimRequest{
			Identity: s.w.identity("c"), Delivery: d, Effect: e.id, Intent: e.intent, Key: e.key, Answers: []string{in.ID}, Answering: true,
			Claim: s.w.draw("claim"), For: 120_000,
		}
		v, err := do(s, "last reply to "+in.ID, fence.RunKey{}, func(view fence.View) (fence.ClaimVerdict, fence.Change) { return s.w.rules.Claim(view, q) })
		if err != nil {
			return err
		}
		if v.Call == nil {
			return fmt.Errorf("message %s is open and nobody may answer it: %s", in.ID, fence.Describe(v))
		}
		d = v.Delivery
	}
	return nil
}
