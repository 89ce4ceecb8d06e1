package ledger

import (
	"context"
	"slices"
	"time"

	"github.com/fencedrun/fencedrun/fence"
)

// look returns what to decide on: the process's copy, moved on to the present by the time that
// passed, or what the store says.
func (op *operation) look(ctx context.Context) (fence.View, error) {
	c := op.c
	now := c.view.Now
	if !op.fresh {
		clock, heard := op.l.glance(c)
		now = clock
		switch {
		case c.have && (op.homeless() || op.lapsed(now)):
			op.forget()
		case !c.have && op.guess && heard:
			// Most conversations that a process does not know are new ones: decide as if
			// it were, and let the store object.
			c.tag, c.view, c.loaded = "", fence.View{Now: now, Home: fence.Home{Known: true}}, now
			c.have, op.guessed = true, true
		}
	}
	op.guess = false
	if !c.have {
		if err := op.load(ctx); err != nil {
			return fence.View{}, err
		}
		now = c.view.Now
	}
	v := c.view
	v.Now = now
	op.now = now
	return v, nil
}

// homeless reports whether the directory must be asked and was not: no copy remembers it.
func (op *operation) homeless() bool { return op.want.Run != "" && !op.c.view.Home.Known }

// lapsed reports whether a lease or a deadline has run out since the store was heard. That is
// for the store's clock to say: this process's may have jumped, and a lease may have been
// renewed, which changes no tag (rules S3.3, S9).
func (op *operation) lapsed(now fence.Millis) bool {
	v := &op.c.view
	if v.Head == nil {
		return false
	}
	if someLapsed(v, now) {
		for i := range v.Head.Seats {
			until := v.Leases[seatLease(&v.Head.Seats[i])]
			// One that the store itself called lapsed is believed for one lease time.
			if until <= now && (until > op.c.loaded || now-op.c.loaded >= op.l.Rules.Lease) {
				return true
			}
		}
	}
	for i := range v.Head.Unresolved {
		u := &v.Head.Unresolved[i]
		if u.State == fence.Pending && u.Deadline < now && u.Deadline >= v.Now {
			return true
		}
	}
	return false
}

// someLapsed tells cheaply that no seat's lease can have run out.
func someLapsed(v *fence.View, now fence.Millis) bool {
	for _, until := range v.Leases {
		if until <= now {
			return true
		}
	}
	return len(v.Leases) < len(v.Head.Seats)
}

func seatLease(seat *fence.Seat) fence.LeaseID {
	return fence.LeaseID{Run: fence.RunRow(seat.Run), Nonce: seat.Delivery.Nonce}
}

// ask adds to what the operation loads from now on; what the copy lacks is loaded next. It
// reports whether the copy lacks anything.
func (op *operation) ask(n fence.Needs) bool {
	for _, key := range n.Keys {
		if !slices.Contains(op.want.Keys, key) {
			op.want.Keys = append(op.want.Keys, key)
		}
	}
	if n.Tail && (!op.want.Tail || n.Since < op.want.Since) {
		op.want.Tail, op.want.Since = true, n.Since
	}
	op.want.Open = op.want.Open || n.Open
	if op.covers() {
		return false
	}
	op.forget()
	return true
}

// covers reports whether the copy holds everything that the operation wants.
func (op *operation) covers() bool {
	v := &op.c.view
	if !op.c.have || op.homeless() || op.want.Open && !v.Opened || op.want.Tail && (!v.Tailed || v.Since > op.want.Since) {
		return false
	}
	for _, key := range op.want.Keys {
		if _, ok := v.Rows[key]; !ok {
			return false
		}
	}
	return true
}

// forget gives the copy up: it is loaded before the next decision.
func (op *operation) forget() { op.c.have, op.fresh, op.guessed = false, false, false }

func (op *operation) load(ctx context.Context) error {
	if op.tx != nil {
		snap, err := op.tx.Load(ctx, op.c.key, op.want)
		if err != nil {
			return err
		}
		return op.adopt(snap)
	}
	var snap Snapshot
	err := op.try(ctx, func() (err error) {
		snap, err = op.l.store.Load(ctx, op.c.key, op.want)
		return err
	})
	if err != nil {
		return err
	}
	return op.adopt(snap)
}

// adopt makes a snapshot of everything that the operation wants the process's copy. At an
// unchanged tag the rows that the copy had are still true: other deliveries need them.
func (op *operation) adopt(snap Snapshot) error {
	v := fence.View{Now: snap.Now, Leases: make(map[fence.LeaseID]fence.Millis, len(snap.Leases)+1)}
	if snap.Tag != "" && snap.Tag == op.c.tag {
		v.Head, v.Rows = op.c.view.Head, op.c.view.Rows
	} else {
		v.Rows = make(map[string]fence.Record, len(op.want.Keys)+4)
		if snap.Tag != "" {
			rec, err := snap.Head.record()
			if err != nil {
				return err
			}
			v.Head, _ = rec.(*fence.Head)
		}
	}
	for _, key := range op.want.Keys {
		v.Rows[key] = nil
	}
	rows, err := records(snap.Rows)
	if err != nil {
		return err
	}
	for _, rec := range rows {
		v.Rows[rec.RowKey()] = rec
	}
	for _, lease := range snap.Leases {
		v.Leases[fence.LeaseID{Run: lease.Run, Nonce: lease.Nonce}] = lease.Until
	}
	if op.want.Run != "" {
		if v.Home, err = homeOf(snap.Home); err != nil {
			return err
		}
	}
	if op.want.Tail {
		v.Tailed, v.Since = true, op.want.Since
		if v.Tail, err = records(snap.Tail); err != nil {
			return err
		}
	}
	if op.want.Open {
		v.Opened, v.OpenCount = true, snap.OpenCount
		open, err := records(snap.Open)
		if err != nil {
			return err
		}
		for _, rec := range open {
			if in, ok := rec.(*fence.Inbound); ok {
				v.Open = append(v.Open, in)
				v.Rows[in.RowKey()] = in
			}
		}
	}
	op.c.tag, op.c.view, op.c.loaded, op.c.have = snap.Tag, v, snap.Now, true
	op.fresh, op.guessed = true, false
	op.l.heard(snap.Now)
	return nil
}

func records(rows []Row) ([]fence.Record, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	recs := make([]fence.Record, len(rows))
	for i, row := range rows {
		rec, err := row.record()
		if err != nil {
			return nil, err
		}
		recs[i] = rec
	}
	return recs, nil
}

// trim keeps the copy of a long conversation small; what is forgotten is loaded when it is
// needed. What nearly every decision of an open handle needs stays.
func (op *operation) trim() {
	v := &op.c.view
	v.Home = fence.Home{}
	v.Tailed, v.Tail, v.Opened, v.Open = false, nil, false, nil
	if len(v.Rows) <= maxRows {
		return
	}
	pinned := op.l.pinned(op.c, len(v.Rows)-maxRows)
	if pinned == nil {
		return
	}
	kept := make(map[string]fence.Record, len(pinned)+len(op.want.Keys))
	for _, keys := range append(pinned, op.want.Keys) {
		for _, key := range keys {
			if rec, known := v.Rows[key]; known {
				kept[key] = rec
			}
		}
	}
	v.Rows = kept
}

// pinned returns the keys that the open handles of c need, or nil if there are at least as many
// as over.
func (l *Ledger) pinned(c *conversation, over int) [][]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for h := range c.handles {
		n += len(h.keys)
	}
	if n >= over {
		return nil
	}
	pinned := make([][]string, 0, len(c.handles)+1)
	for h := range c.handles {
		pinned = append(pinned, h.keys)
	}
	return pinned
}

// The ledger's clock, as far as this process knows it: the store's last answer plus what has
// passed here since. It lags behind by what the answer took and is ahead by no more than the
// drift of this process's clock. Only decisions for which the difference does not matter rest
// on it; see lapsed.

// heard notes what the store's clock said just now.
func (l *Ledger) heard(now fence.Millis) {
	at := l.Seam.Now()
	l.mu.Lock()
	l.heardNow, l.heardAt = now, at
	l.mu.Unlock()
}

// clock estimates the store's clock; false before the store has said anything.
func (l *Ledger) clock() (fence.Millis, bool) {
	at := l.Seam.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.heardNow + fence.Millis(max(at.Sub(l.heardAt), 0)/time.Millisecond), l.heardNow > 0
}

// glance is clock, and brings the copy's leases up to date with what Renew was told.
func (l *Ledger) glance(c *conversation) (fence.Millis, bool) {
	at := l.Seam.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, until := range c.renewed {
		if have, ok := c.view.Leases[id]; ok && until > have {
			c.view.Leases[id] = until
		}
	}
	clear(c.renewed)
	return l.heardNow + fence.Millis(max(at.Sub(l.heardAt), 0)/time.Millisecond), l.heardNow > 0
}
