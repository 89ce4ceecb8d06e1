package pgledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencedrun/fencedrun/ledger"
)

// beginSQL does not leave the level to the session's default: the load behind the lock must see
// what the lock waited for.
const beginSQL = "begin isolation level read committed"

// tx is a transaction that holds the lock of a conversation.
type tx struct {
	s            *Store
	q            txConn
	conversation string
	joined       bool // it is the caller's
	begun        bool
	locked       bool // the conversation was there to be locked
	wrote        bool
	durable      bool
	err          error // the first error of the database
}

// txConn is a connection in a transaction.
type txConn interface {
	querier
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// WithLock implements ledger.Locker. The lock is the conversation's row; a conversation that does
// not exist has none, and who makes it is decided by its unique name. Nothing is sent before fn
// asks for something: begin, lock and load are one round trip.
func (s *Store) WithLock(ctx context.Context, conversation string, fn func(ledger.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("pgledger: lock: %w", err)
	}
	var refused error
	err := s.retry(ctx, "lock", func() (err error) {
		conn, err := s.pool.Acquire(ctx)
		if err != nil {
			return err
		}
		// One that is still in a transaction is closed, not handed on.
		defer conn.Release()
		t := &tx{s: s, q: conn, conversation: conversation}
		refused = fn(t)
		switch {
		case t.err != nil:
			// fn's error is the database's, or rests on it.
			t.rollback(ctx, conn)
			refused = nil
			return t.err
		case !t.begun:
			return nil
		case refused != nil || !t.wrote:
			t.rollback(ctx, conn)
			return nil
		}
		return t.commit(ctx, conn)
	})
	if err != nil {
		return err
	}
	return refused
}

// rollbackTime bounds a rollback, which need not succeed: who gets no answer closes the connection.
const rollbackTime = 5 * time.Second

func (t *tx) rollback(ctx context.Context, conn *pgxpool.Conn) {
	if !t.begun || conn.Conn().IsClosed() {
		return
	}
	ctx, cancel := t.s.seam.WithTimeout(context.WithoutCancel(ctx), rollbackTime)
	defer cancel()
	_, _ = conn.Exec(ctx, "rollback", pgx.QueryExecModeSimpleProtocol)
}

func (t *tx) commit(ctx context.Context, conn *pgxpool.Conn) error {
	text := "commit"
	if t.s.async(t.durable) {
		text = "set local synchronous_commit = off; commit"
	}
	tag, err := conn.Exec(ctx, text, pgx.QueryExecModeSimpleProtocol)
	if err == nil && tag.String() == "ROLLBACK" {
		err = errors.New("the server rolled back what was to be committed")
	}
	return err
}

// Load implements ledger.Tx.
func (t *tx) Load(ctx context.Context, conversation string, q ledger.Query) (ledger.Snapshot, error) {
	text, args := t.s.loading(conversation, q)
	var snap ledger.Snapshot
	err := t.behindLock(ctx, text, args, func(rows pgx.Rows) error { return addTo(&snap, rows) })
	if err != nil {
		return ledger.Snapshot{}, t.failed("load", err)
	}
	snap.Sort()
	return snap, nil
}

// Apply implements ledger.Tx.
func (t *tx) Apply(ctx context.Context, conversation string, w ledger.Write) (ledger.Result, error) {
	// How the transaction commits is said at its end, or is the caller's business.
	st, err := t.s.statement(conversation, w, false)
	if err != nil {
		return ledger.Result{}, err
	}
	if err := t.behindLock(ctx, "", nil, nil); err != nil {
		return ledger.Result{}, t.failed("lock", err)
	}
	a, err := t.s.apply(ctx, t.q, st)
	if err != nil {
		return ledger.Result{}, t.failed("apply", err)
	}
	t.wrote = t.wrote || a.applied
	t.durable = t.durable || a.applied && w.Durable
	return ledger.Result{Applied: a.applied, Now: a.now}, nil
}

func (t *tx) failed(verb string, err error) error {
	if t.err == nil {
		t.err = err
	}
	return fmt.Errorf("pgledger: %s: %w", verb, explain(err))
}

// behindLock makes sure that the conversation is locked if it can be, then runs text if there is
// one: as a later statement, because one that waits for a lock still answers from before.
func (t *tx) behindLock(ctx context.Context, text string, args []any, each func(pgx.Rows) error) error {
	if t.locked {
		if text == "" {
			return nil
		}
		return t.s.ask(ctx, t.q, text, each, args...)
	}
	if text == "" && t.begun {
		return nil // whoever makes a conversation is decided by its name
	}
	name := []byte(t.conversation)
	if !t.s.batches || t.joined {
		if !t.begun {
			rows, err := t.q.Query(ctx, beginSQL, pgx.QueryExecModeSimpleProtocol)
			if err := every(rows, err, nil); err != nil {
				return err
			}
			t.begun = true
		}
		if err := t.s.ask(ctx, t.q, t.s.texts.lock, t.lockAnswer, name); err != nil {
			return err
		}
		if text == "" {
			return nil
		}
		return t.s.ask(ctx, t.q, text, each, args...)
	}
	var batch pgx.Batch
	if !t.begun {
		batch.Queue(beginSQL)
	}
	batch.Queue(t.s.texts.lock, name).Query(func(rows pgx.Rows) error { return every(rows, nil, t.lockAnswer) })
	if text != "" {
		batch.Queue(text, args...).Query(func(rows pgx.Rows) error { return every(rows, nil, each) })
	}
	t.begun = true
	return t.q.SendBatch(ctx, &batch).Close()
}

func (t *tx) lockAnswer(rows pgx.Rows) error {
	var id *string
	return rows.Scan(&id, &t.locked)
}

// Join implements ledger.Joiner. tx is a pgx.Tx of the database that holds the ledger, which the
// caller began and ends. Its settings stay as they are: that claim and settle are durable is a
// matter of its commit. The first error of the database leaves it aborted, as ever.
//
// A conversation that does not exist yet cannot be locked: then somebody else may still make it,
// and the write is refused.
func (s *Store) Join(ctx context.Context, transaction any, conversation string) (ledger.Tx, error) {
	theirs, ok := transaction.(pgx.Tx)
	switch {
	case transaction == nil:
		return nil, fmt.Errorf("%w: tx is nil", ledger.ErrNoJoin)
	case !ok:
		return nil, fmt.Errorf("%w: tx is a %T, not a pgx.Tx", ledger.ErrNoJoin, transaction)
	}
	t := &tx{s: s, q: theirs, conversation: conversation, joined: true, begun: true}
	var id *string
	err := s.ask(ctx, theirs, s.texts.lock, func(rows pgx.Rows) error { return rows.Scan(&id, &t.locked) }, []byte(conversation))
	if err != nil {
		if missingTable(err) {
			return nil, fmt.Errorf("%w: there is no ledger in schema %s of its database; is it of another one than the ledger's? %w", ledger.ErrNoJoin, s.config.Schema, err)
		}
		return nil, fmt.Errorf("pgledger: join: %w", explain(err))
	}
	if id == nil || *id != s.identity {
		return nil, fmt.Errorf("%w: it is of another database, which has another ledger in schema %s", ledger.ErrNoJoin, s.config.Schema)
	}
	return t, nil
}
