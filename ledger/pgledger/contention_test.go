package pgledger_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
)

// onceMore does an effect, or waits for who does it, as a handler would. It counts the calls.
func onceMore(ctx context.Context, h *ledger.Handle, q fence.ClaimRequest, calls *atomic.Int64) error {
	for {
		v, _, err := h.Claim(ctx, q)
		switch {
		case err != nil:
			return err
		case v.Replay != nil:
			return nil
		case v.Call != nil:
			calls.Add(1)
			s, _, err := h.Settle(ctx, settlement(v, "done"))
			if err == nil && !s.Recorded {
				err = fmt.Errorf("settle: %+v", s)
			}
			return err
		case v.Refusal.Reason != fence.ReasonInFlight:
			return fmt.Errorf("refused: %+v", *v.Refusal)
		}
		q.Claim = newID()
		time.Sleep(time.Millisecond + rand.N(5*time.Millisecond)) // somebody is at it
	}
}

// Case F15: 50 goroutines of five processes with 20 effects each, on one conversation and on ten
// that are touched in random order, at every level of isolation.
func TestContentionIsNoErrorAndNoSecondCall(t *testing.T) {
	goroutines, effects := 50, 20
	if testing.Short() {
		goroutines, effects = 20, 5
	}
	const processes = 5
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		for _, conversations := range []int{1, 10} {
			t.Run(fmt.Sprintf("%s, %d conversations", level, conversations), func(t *testing.T) {
				store, _, _ := newStore(t, unflushed, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["default_transaction_isolation"] = level })
				ledgers := make([]*ledger.Ledger, processes)
				for i := range ledgers {
					ledgers[i] = newLedger(store)
				}
				calls := make([]atomic.Int64, conversations*effects)
				var wg sync.WaitGroup
				errs := make(chan error, goroutines)
				for g := range goroutines {
					wg.Go(func() {
						errs <- func() error {
							handles := map[int]*ledger.Handle{}
							defer func() {
								for _, h := range handles {
									h.Close()
								}
							}()
							for _, n := range rand.Perm(conversations * effects)[:effects] {
								c := n % conversations
								name := fmt.Sprint("c", c)
								if handles[c] == nil {
									h, v, _, err := ledgers[g%processes].Begin(context.Background(), name, fence.BeginRequest{
										Run: fence.RunKey{Queue: "q", ID: fmt.Sprint("j", g, "-", c)}, Mode: fence.Supersede, Reads: fence.AfterBegin,
										Identity: fence.Identity{Nonce: newID()},
									})
									if err != nil || h == nil {
										return fmt.Errorf("begin: %+v, %w", v, err)
									}
									handles[c] = h
								}
								q := effect(name, fmt.Sprint(n))
								q.Policy, q.AfterUnresolved = fence.NoChange, true
								if err := onceMore(context.Background(), handles[c], q, &calls[n]); err != nil {
									return fmt.Errorf("effect %d on %s: %w", n, name, err)
								}
							}
							return nil
						}()
					})
				}
				wg.Wait()
				close(errs)
				for err := range errs {
					if err != nil {
						t.Error(err)
					}
				}
				for n := range calls {
					if got := calls[n].Load(); got > 1 {
						t.Errorf("effect %d was called %d times", n, got)
					}
				}
			})
		}
	}
}

// Case F15: what the server undoes is done again, without a second call and without an error.
func TestASettleThatIsUndoneThreeTimesIsDone(t *testing.T) {
	for _, code := range []string{"40001", "40P01", "55P03"} {
		t.Run(code, func(t *testing.T) {
			var r tracer
			store, pool, schema := newStore(t, traced(&r))
			h := begun(t, newLedger(store), "c", "j")
			settle(t, h, claim(t, h, effect("c", "warm")))
			// A sequence is not undone with its transaction.
			run(t, pool, "create sequence "+schema+".failures")
			run(t, pool, fmt.Sprintf(`create function %[1]s.fail() returns trigger language plpgsql as $f$ begin
				if nextval('%[1]s.failures') %% 4 <> 0 then raise exception 'injected' using errcode = '%[2]s'; end if; return null; end $f$`, schema, code))
			// At the end of the transaction, where a serialization failure comes.
			run(t, pool, fmt.Sprintf(`create constraint trigger failing after update on %[1]s.record deferrable initially deferred
				for each row execute function %[1]s.fail()`, schema))
			for i := range 5 {
				v := claim(t, h, effect("c", fmt.Sprint(i)))
				r.take()
				settle(t, h, v)
				if n := r.take(); n != 4 {
					t.Errorf("settle %d took %d statements, want 3 that were undone and one that was not", i, n)
				}
			}
			// It is bounded.
			run(t, pool, fmt.Sprintf(`create or replace function %[1]s.fail() returns trigger language plpgsql as $f$ begin
				raise exception 'injected' using errcode = '%[2]s'; end $f$`, schema, code))
			v := claim(t, h, effect("c", "never"))
			if s, _, err := h.Settle(t.Context(), settlement(v, "done")); err == nil {
				t.Errorf("%+v", s)
			}
		})
	}
}

// Case F17: while an effect runs the ledger holds no connection and no lock, and its claim is there
// for everybody.
func TestNothingIsHeldWhileAnEffectRuns(t *testing.T) {
	store, pool, schema := newStore(t, func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = "200"
		c.ConnConfig.RuntimeParams["statement_timeout"] = "1000"
	})
	h := begun(t, newLedger(store), "c", "j")
	v := claim(t, h, effect("c", "m"))
	if n := pool.Stat().AcquiredConns(); n != 0 {
		t.Errorf("%d connections are held", n)
	}
	if n := scalar[int](t, pool, `select count(*) from pg_locks l join pg_class c on c.oid = l.relation
		where c.relnamespace = $1::regnamespace and l.mode <> 'AccessShareLock' and l.pid <> pg_backend_pid()`, schema); n != 0 {
		t.Errorf("%d locks are held", n)
	}
	if n := scalar[int](t, pool, "select count(*) from pg_stat_activity where xact_start is not null and pid <> pg_backend_pid() and query like '%' || $1 || '%'", schema); n != 0 {
		t.Errorf("%d transactions are open", n)
	}
	h2 := begun(t, newLedger(store), "c", "j2")
	q := effect("c", "m")
	if v, _, err := h2.Claim(t.Context(), q); err != nil || v.Refusal == nil || v.Refusal.Reason != fence.ReasonInFlight {
		t.Errorf("another run meanwhile: %+v, %v", v, err)
	}
	settle(t, h, v)
	if v, _, err := h2.Claim(t.Context(), q); err != nil || v.Replay == nil {
		t.Errorf("another run afterwards: %+v, %v", v, err)
	}
}

// Case F18: all connections of the pool are in handlers' hands, and leases are renewed.
func TestAnExhaustedPoolStarvesNoRenewal(t *testing.T) {
	store, pool, _ := newStore(t, func(c *pgxpool.Config) { c.MaxConns = 4 })
	h := begun(t, newLedger(store), "c", "j")
	for range 4 {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Release)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for range 3 {
		if r, err := store.Renew(ctx, []ledger.LeaseKey{h.Lease()}, time.Minute); err != nil || !r[0].Found {
			t.Errorf("%+v, %v", r, err)
		}
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := store.Load(short, "c", ledger.Query{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the pool was not exhausted: %v", err)
	}
}

// Case F18: the server has no connection left for renewals. Then one of the pool does.
func TestARenewalWithoutAConnectionOfItsOwnTakesOneOfThePool(t *testing.T) {
	var closed atomic.Bool
	store, _, _ := newStore(t, func(c *pgxpool.Config) {
		c.MaxConns, c.MinConns = 1, 1
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			if closed.Load() {
				return nil, syscall.ECONNREFUSED
			}
			return dial(ctx, network, address)
		}
	})
	h := begun(t, newLedger(store), "c", "j")
	closed.Store(true)
	if r, err := store.Renew(t.Context(), []ledger.LeaseKey{h.Lease()}, time.Minute); err != nil || !r[0].Found {
		t.Errorf("%+v, %v", r, err)
	}
}
