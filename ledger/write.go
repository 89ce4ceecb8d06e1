package ledger

import (
	"context"
	"fmt"
	"slices"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/sabotage"
)

// apply writes a change and keeps the process's copy in step with it. Neither applied nor an
// error means: decide again; contended says that somebody else had come first.
func (op *operation) apply(ctx context.Context, view fence.View, change fence.Change) (applied, contended bool, err error) {
	w := op.write(view, change)
	var result Result
	if op.tx != nil {
		result, err = op.tx.Apply(ctx, op.c.key, w)
	} else {
		result, err = op.l.store.Apply(ctx, op.c.key, w)
	}
	if err != nil && op.takenForRight() {
		op.follow(view, change, w, view.Now)
		return true, false, nil
	}
	if err != nil {
		op.forget()
		if op.tx == nil && op.l.again(ctx, &op.failed, err) {
			// Applied or not, the next decision will know it by its claim id or nonce.
			return false, false, nil
		}
		return false, false, err
	}
	if !result.Applied {
		contended = !op.guessed
		op.forget()
		op.ask(fence.Needs{Keys: change.Absent})
		if result.Current == nil {
			return false, contended, nil
		}
		// Refused for what the view did not hold: nobody is racing.
		contended = contended && result.Current.Tag != w.Tag
		return false, contended, op.adopt(*result.Current)
	}
	op.follow(view, change, w, result.Now)
	return true, false, nil
}

// write translates a change into rows.
func (op *operation) write(view fence.View, change fence.Change) Write {
	w := Write{
		Tag: op.c.tag, NewTag: op.newTag(), Head: op.head(view, change),
		Delete: change.Delete, Absent: change.Absent, Durable: change.Durable, Want: op.want,
	}
	w.Want.Keys = append(slices.Clip(w.Want.Keys), change.Absent...)
	if len(change.Rows) > 0 {
		w.Put = make([]Row, len(change.Rows))
		for i, rec := range change.Rows {
			w.Put[i] = rowOf(rec)
		}
	}
	for _, lease := range change.Lease {
		w.Leases = append(w.Leases, LeaseWrite{Run: lease.ID.Run, Nonce: lease.ID.Nonce, For: lease.For.Duration()})
	}
	if change.Home != nil {
		w.Home = &HomeWrite{Run: op.l.runKey(change.Home.Run), Was: op.was()}
	}
	for _, run := range change.Forget {
		w.Forget = append(w.Forget, op.l.runKey(run))
	}
	return w
}

// head returns the head's row. It is due when nothing has happened for a whole retention, so
// that a conversation without rows is found by somebody: a stamp was all it ever had, or a
// purge died before it dropped it. The time is rounded up to spare the store an index entry
// for every change.
func (op *operation) head(view fence.View, change fence.Change) Row {
	row := rowOf(change.Head)
	step := max(op.l.Rules.Retention/16, 1)
	row.Index.Due = ((view.Now+op.l.Rules.Retention)/step + 1) * step
	return row
}

// newTag draws the tag of the next state. It must not be foreseeable from the present one: a
// crash that loses an acknowledged change would hand a counter's value out again (rule S3.2).
func (op *operation) newTag() string {
	if op.l.Seam.Off.Has(sabotage.CounterTags) {
		var n int
		_, _ = fmt.Sscanf(op.c.tag, "n%d", &n)
		return fmt.Sprintf("n%d", n+1)
	}
	return op.l.Seam.NewID()
}

// follow moves the process's copy to the state that was written.
func (op *operation) follow(view fence.View, change fence.Change, w Write, now fence.Millis) {
	v := view
	v.Now, v.Head = now, change.Head
	if v.Rows == nil {
		v.Rows = make(map[string]fence.Record, len(change.Rows))
	}
	if v.Leases == nil {
		v.Leases = make(map[fence.LeaseID]fence.Millis, 1)
	}
	for _, key := range change.Absent {
		v.Rows[key] = nil
	}
	for i, rec := range change.Rows {
		v.Rows[w.Put[i].Key] = rec
	}
	for _, key := range change.Delete {
		v.Rows[key] = nil
	}
	for _, lease := range change.Lease {
		if lease.For == 0 {
			delete(v.Leases, lease.ID)
		} else {
			v.Leases[lease.ID] = now + lease.For
		}
	}
	if op.guessed {
		op.c.loaded = now // it has no leases but those just written
	}
	op.c.tag, op.c.view, op.c.have = w.NewTag, v, true
	op.wrote, op.base, op.now = true, w.Tag, now
	if op.joined == nil { // there now is when the transaction last read, which may be long ago
		op.l.heard(now)
	}
}
