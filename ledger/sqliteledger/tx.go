package sqliteledger

import (
	"context"
	"database/sql"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
)

// tx is a transaction that holds the file's write lock.
type tx struct {
	s     *Store
	on    runner
	ctx   context.Context // not cancelled before the transaction ends
	wrote bool
}

// runner is the connection that a transaction is on: the writer's, or the caller's own.
type runner interface {
	exec(ctx context.Context, q *query, args ...any) (sql.Result, error)
	query(ctx context.Context, q *query, args ...any) (*sql.Rows, error)
}

func (t *tx) exec(q *query, args ...any) error {
	_, err := t.on.exec(t.ctx, q, args...)
	return err
}

func (t *tx) ask(_ context.Context, q *query, each func(*sql.Rows) error, args ...any) error {
	rows, err := t.on.query(t.ctx, q, args...)
	return every(rows, err, each)
}

// row asks for at most one row.
func (t *tx) row(q *query, args []any, into ...any) (found bool, err error) {
	err = t.ask(t.ctx, q, func(rows *sql.Rows) error {
		found = true
		return rows.Scan(into...)
	}, args...)
	return found, err
}

// Load implements ledger.Tx.
func (t *tx) Load(_ context.Context, conversation string, q ledger.Query) (ledger.Snapshot, error) {
	return t.s.load(t.ctx, t.ask, conversation, q)
}

// state is what a conversation is before a write.
type state struct {
	now fence.Millis
	id  sql.NullInt64 // not valid: there is no such conversation
	tag []byte
	due sql.NullInt64
}

// Apply implements ledger.Tx. It looks at everything first, so that a refusal has written
// nothing and can show the present.
func (t *tx) Apply(_ context.Context, conversation string, w ledger.Write) (ledger.Result, error) {
	var is state
	if _, err := t.row(peek, []any{[]byte(conversation), t.s.now()}, &is.now, &is.id, &is.tag, &is.due); err != nil {
		return ledger.Result{}, err
	}
	result := ledger.Result{Now: is.now}
	allowed, err := t.allows(is, w)
	if err != nil {
		return ledger.Result{}, err
	}
	if !allowed {
		current, err := t.Load(t.ctx, conversation, w.Want)
		result.Current = &current
		return result, err
	}
	t.wrote = true
	result.Applied = true
	if w.Drop {
		return result, t.drop(is.id.Int64)
	}
	id, err := t.putHead(is, conversation, w)
	if err != nil {
		return ledger.Result{}, err
	}
	if err := t.putRows(id, w); err != nil {
		return ledger.Result{}, err
	}
	if err := t.putLeases(id, is.now, w.Leases); err != nil {
		return ledger.Result{}, err
	}
	return result, t.putHomes(conversation, w)
}

func (t *tx) allows(is state, w ledger.Write) (bool, error) {
	if string(is.tag) != w.Tag {
		return false, nil
	}
	if w.Drop {
		return is.id.Valid, nil
	}
	for _, key := range w.Absent {
		if !is.id.Valid {
			break
		}
		var one int
		if there, err := t.row(absent, []any{is.id.Int64, []byte(key)}, &one); err != nil || there {
			return false, err
		}
	}
	if w.Home == nil {
		return true, nil
	}
	home, err := t.home(w.Home.Run)
	return home.Found == w.Home.Was.Found && home.Conversation == w.Home.Was.Conversation, err
}

func (t *tx) home(run string) (ledger.Home, error) {
	var conversation, tombstone []byte
	found, err := t.row(findHome, []any{[]byte(run)}, &conversation, &tombstone)
	if err != nil || !found {
		return ledger.Home{}, err
	}
	return ledger.HomeOf(conversation, tombstone), nil
}

func (t *tx) drop(id int64) error {
	for _, q := range []*query{dropRows, dropLeases, drop} {
		if err := t.exec(q, id); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) putHead(is state, conversation string, w ledger.Write) (id int64, err error) {
	body, err := bodyOf(w.Head)
	if err != nil {
		return 0, err
	}
	due := int64(w.Head.Index.Due)
	if !is.id.Valid {
		_, err := t.row(insert, []any{[]byte(conversation), []byte(w.NewTag), body, due}, &id)
		return id, err
	}
	id = is.id.Int64
	if due != is.due.Int64 {
		if err := t.exec(updateDue, id, due); err != nil {
			return 0, err
		}
	}
	return id, t.exec(update, id, []byte(w.NewTag), body)
}

// bodyOf returns a row's bytes, never nil: nil would be NULL.
func bodyOf(row ledger.Row) ([]byte, error) {
	body, err := row.Body()
	if body == nil {
		body = []byte{}
	}
	return body, err
}

func (t *tx) putRows(id int64, w ledger.Write) error {
	for _, row := range w.Put {
		body, err := bodyOf(row)
		if err != nil {
			return err
		}
		ix := row.Index
		if err := t.exec(put, id, []byte(row.Key), int64(ix.Open), int64(ix.At), ix.Landed, int64(ix.Due), body); err != nil {
			return err
		}
	}
	for _, key := range w.Delete {
		if err := t.exec(remove, id, []byte(key)); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) putLeases(id int64, now fence.Millis, leases []ledger.LeaseWrite) error {
	for _, l := range leases {
		var err error
		if l.For == 0 {
			err = t.exec(unlease, id, []byte(l.Run), []byte(l.Nonce))
		} else {
			err = t.exec(lease, id, []byte(l.Run), []byte(l.Nonce), int64(now+fence.MillisOf(l.For)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) putHomes(conversation string, w ledger.Write) error {
	if w.Home != nil {
		if err := t.exec(moveIn, []byte(w.Home.Run), []byte(conversation)); err != nil {
			return err
		}
	}
	for _, run := range w.Forget {
		if err := t.exec(moveOut, []byte(run), []byte(conversation)); err != nil {
			return err
		}
	}
	return nil
}
