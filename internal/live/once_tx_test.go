package live

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"

	riverruns "github.com/fencedrun/fencedrun/adapters/river"
	"github.com/fencedrun/fencedrun/chaos/proxy"
	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/services/private"
	"github.com/fencedrun/fencedrun/ledger/pgledger"
	"github.com/fencedrun/fencedrun/runs"
)

// bank is a service whose tables are in the ledger's Postgres, behind a proxy.
type bank struct {
	*testing.T
	proxy  *proxy.Proxy
	pool   *pgxpool.Pool // past the proxy
	via    *pgxpool.Pool // through it
	keeper *runs.Keeper  // past it
	schema string
}

func newBank(t *testing.T) *bank {
	t.Helper()
	at, err := url.Parse(private.ServicePostgres.Need(t))
	if err != nil {
		t.Fatal(err)
	}
	b := &bank{T: t, pool: pool(t, at.String())}
	b.schema = schemaOn(t, b.pool)
	if b.proxy, err = proxy.Listen(proxy.Postgres, at.Host); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.proxy.Close() })
	through := *at
	through.Host = b.proxy.Addr()
	b.via = pool(t, through.String())
	store, err := pgledger.Open(t.Context(), b.pool, &pgledger.Config{Schema: b.schema})
	if err != nil {
		t.Fatal(err)
	}
	if b.keeper, err = runs.New(store, &runs.Config{PollMin: time.Millisecond, PollMax: 10 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.keeper.Close() })
	// No unique key: it would hide a duplicate.
	if _, err := b.pool.Exec(t.Context(), fmt.Sprintf("create table %s.credit (who text)", b.schema)); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bank) credits(who string) (n int) {
	b.Helper()
	if err := b.pool.QueryRow(b.Context(), fmt.Sprintf("select count(*) from %s.credit where who = $1", b.schema), who).Scan(&n); err != nil {
		b.Fatal(err)
	}
	return n
}

// pay credits who in tx, once.
func (b *bank) pay(ctx context.Context, tx pgx.Tx, who string) error {
	return runs.FromContext(ctx).OnceTx(ctx, tx, runs.Effect{Intent: "credit", Key: runs.ID(who)}, func(ctx context.Context, _ *runs.Call) error {
		_, err := tx.Exec(ctx, fmt.Sprintf("insert into %s.credit values ($1)", b.schema), who)
		return err
	})
}

// pays is a job that credits its conversation, and ends, in one transaction.
func (b *bank) pays(p *pgxpool.Pool, c string) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second) // for a test that would hang
		defer cancel()
		return pgx.BeginFunc(ctx, p, func(tx pgx.Tx) error {
			if err := b.pay(ctx, tx, c); err != nil {
				return err
			}
			return runs.FromContext(ctx).CompleteTx(ctx, tx)
		})
	}
}

// Whichever frame of the transaction is the last: the effect, its record and the run's end are all
// there or none is. Nobody knows which when the answer to COMMIT is lost; the next delivery does.
func TestATransactionThatBreaksLeavesAllOrNothing(t *testing.T) {
	b := newBank(t)
	counts := map[proxy.Direction]int{}
	for _, to := range []proxy.Direction{proxy.ToServer, proxy.ToClient} {
		if err := b.keeper.Do(t.Context(), job("warm", to), b.pays(b.via, fmt.Sprint("warm ", to))); err != nil {
			t.Fatal(err)
		}
		b.proxy.Arm(proxy.Fault{Frame: 1 << 30, Direction: to, Match: func(proxy.Frame) bool { counts[to]++; return false }})
		if err := b.keeper.Do(t.Context(), job("counted", to), b.pays(b.via, fmt.Sprint("counted ", to))); err != nil {
			t.Fatal(err)
		}
		b.proxy.Disarm()
	}
	all, none, unsure := 0, 0, 0
	for to, n := range counts {
		for frame := 1; frame <= n; frame++ {
			for _, after := range []bool{false, true} {
				c := fmt.Sprintf("%v %d after=%v", to, frame, after)
				// The last cut leaves a connection that is dead, which the pool may not know yet, and
				// then a new one, on which everything must be prepared first.
				await(t, "a connection is warm", func() bool {
					return b.keeper.Do(t.Context(), job("warm "+c, c), b.pays(b.via, "warm "+c)) == nil
				})
				b.proxy.Arm(proxy.Fault{Frame: frame, Direction: to, After: after})
				err := b.keeper.Do(t.Context(), job(c, c), b.pays(b.via, c))
				b.proxy.Disarm()
				paid, recorded, ended := b.credits(c), state(t, b.keeper, c), b.ended(c)
				switch {
				case paid == 1 && recorded == runs.Committed && ended:
					all++
					if err != nil {
						unsure++
					}
				case paid == 0 && recorded == "" && !ended && err != nil:
					none++
				default:
					t.Errorf("%s: paid %d times, %q, ended %v: %v", c, paid, recorded, ended, err)
				}
				if err := b.keeper.Do(t.Context(), job(c, c), b.pays(b.pool, c)); err != nil {
					t.Errorf("%s: %v", c, err)
				}
				if b.credits(c) != 1 || state(t, b.keeper, c) != runs.Committed {
					t.Errorf("%s: paid %d times in the end", c, b.credits(c))
				}
			}
		}
	}
	t.Logf("%v frames: all %d times (%d of them without the caller knowing), nothing %d times", counts, all, unsure, none)
	if none == 0 || unsure == 0 {
		t.Error("no cut hit the transaction, or none its commit")
	}
}

func (b *bank) ended(c string) bool {
	b.Helper()
	h, err := b.keeper.History(b.Context(), c)
	if err != nil {
		b.Fatal(err)
	}
	return len(h.Runs) == 1 && h.Runs[0].State == fence.RunEnded
}

func TestABackendThatIsKilledInTheTransactionLeavesNothing(t *testing.T) {
	b := newBank(t)
	err := b.keeper.Do(t.Context(), job("c", 1), func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, b.via, func(tx pgx.Tx) error {
			if err := b.pay(ctx, tx, "c"); err != nil {
				return err
			}
			if _, err := b.pool.Exec(ctx, "select pg_terminate_backend($1)", tx.Conn().PgConn().PID()); err != nil {
				return err
			}
			return runs.FromContext(ctx).CompleteTx(ctx, tx)
		})
	})
	if err == nil || b.credits("c") != 0 || state(t, b.keeper, "c") != "" {
		t.Errorf("%v; paid %d times, %q", err, b.credits("c"), state(t, b.keeper, "c"))
	}
	if err := b.keeper.Do(t.Context(), job("c", 1), b.pays(b.pool, "c")); err != nil || b.credits("c") != 1 {
		t.Errorf("%v; paid %d times", err, b.credits("c"))
	}
}

// Two workers want the same effect in a transaction each: the second waits for the first's end,
// and gets what came of it.
func TestTransactionsOnOneConversationWaitForEachOther(t *testing.T) {
	for _, end := range []string{"commit", "rollback"} {
		t.Run(end, func(t *testing.T) {
			b := newBank(t)
			holds, second := make(chan struct{}), make(chan error, 1)
			go func() {
				<-holds
				second <- b.keeper.Do(t.Context(), job("c", 2), b.pays(b.pool, "c"))
			}()
			stop := errors.New("stop")
			err := b.keeper.Do(t.Context(), job("c", 1), func(ctx context.Context) error {
				return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
					if err := b.pay(ctx, tx, "c"); err != nil {
						return err
					}
					close(holds)
					await(t, "the second one waits for a lock", func() bool {
						var n int
						err := b.pool.QueryRow(t.Context(), "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and query like $1", "%"+b.schema+"%").Scan(&n)
						return err == nil && n > 0
					})
					if end == "rollback" {
						return stop
					}
					return nil
				})
			})
			if (err == nil) != (end == "commit") {
				t.Error(err)
			}
			if err := <-second; err != nil {
				t.Logf("the second: %v", err)
			}
			if n := b.credits("c"); n != 1 {
				t.Errorf("paid %d times", n)
			}
		})
	}
}

type payArgs struct {
	Who string `json:"who"`
}

func (payArgs) Kind() string           { return "pay" }
func (a payArgs) Conversation() string { return a.Who }
func (payArgs) Inbound() []string      { return []string{"m1"} }
func (b *bank) rivers() *river.Config {
	return &river.Config{Schema: b.schema, Logger: slog.New(slog.DiscardHandler)}
}
func isCommit(f proxy.Frame) bool {
	return f.Type == 'Q' && strings.Contains(strings.ToLower(string(f.Data)), "commit")
}
func isCommitted(f proxy.Frame) bool {
	return f.Type == 'C' && strings.HasPrefix(string(f.Data[5:]), "COMMIT")
}
func (b *bank) client(t *testing.T, p *pgxpool.Pool, change func(*river.Config)) *river.Client[pgx.Tx] {
	t.Helper()
	config := b.rivers()
	change(config)
	client, err := river.NewClient(riverpgxv5.New(p), config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// The job's completion in River is part of the same transaction: a crash before its commit leaves a
// job that is delivered again and an effect that was not done, one after it a job that is done.
func TestRiversCompletionCommitsWithTheEffect(t *testing.T) {
	for name, fault := range map[string]proxy.Fault{
		"cut before COMMIT":          {Direction: proxy.ToServer, Match: isCommit},
		"cut after COMMIT":           {Direction: proxy.ToServer, Match: isCommit, After: true},
		"cut before COMMIT's answer": {Direction: proxy.ToClient, Match: isCommitted},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBank(t)
			migrator, err := rivermigrate.New(riverpgxv5.New(b.pool), &rivermigrate.Config{Schema: b.schema, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil); err != nil {
				t.Fatal(err)
			}
			plugin, err := riverruns.NewPlugin(b.keeper, &riverruns.Config{Reads: runs.AfterBegin, Inbound: riverruns.FromArgs, Schema: b.schema})
			if err != nil {
				t.Fatal(err)
			}
			entered := 0
			workers := river.NewWorkers()
			river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, job *river.Job[payArgs]) error {
				entered++
				return pgx.BeginFunc(ctx, b.via, func(tx pgx.Tx) error {
					if err := b.pay(ctx, tx, job.Args.Who); err != nil {
						return err
					}
					_, err := riverruns.CompleteTx[*riverpgxv5.Driver](ctx, tx, job)
					return err
				})
			}))
			client := b.client(t, b.pool, func(c *river.Config) {
				c.Workers, c.Plugins = workers, []rivertype.Plugin{plugin}
				c.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2}}
				c.RetryPolicy, c.FetchPollInterval, c.FetchCooldown = atOnce{}, 50*time.Millisecond, 50*time.Millisecond
			})
			hit := b.proxy.Arm(fault)
			if err := client.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			inserted, err := client.Insert(t.Context(), payArgs{Who: "c"}, nil)
			if err != nil {
				t.Fatal(err)
			}
			await(t, "the job is completed", func() bool {
				row, err := client.JobGet(t.Context(), inserted.Job.ID)
				return err == nil && row.State == rivertype.JobStateCompleted
			})
			if err := client.Stop(t.Context()); err != nil {
				t.Error(err)
			}
			if _, struck := <-hit; !struck {
				t.Error("COMMIT was not struck")
			}
			if n := b.credits("c"); n != 1 || state(t, b.keeper, "c") != runs.Committed {
				t.Errorf("paid %d times, %q", n, state(t, b.keeper, "c"))
			}
			if want := map[bool]int{true: 2, false: 1}[name == "cut before COMMIT"]; entered != want {
				t.Errorf("the worker was entered %d times, want %d", entered, want)
			}
		})
	}
}

type atOnce struct{}

func (atOnce) NextRetry(*rivertype.JobRow) time.Time { return time.Now().Add(50 * time.Millisecond) }

// A transaction that ends one run is open for three lease times. The other runs of the process are
// renewed all the same: their leases are in the same statement.
func TestAnOpenTransactionStarvesNoOtherRunsLease(t *testing.T) {
	b := newBank(t)
	const lease = 600 * time.Millisecond
	store, err := pgledger.Open(t.Context(), b.pool, &pgledger.Config{Schema: b.schema})
	if err != nil {
		t.Fatal(err)
	}
	k, err := runs.New(store, &runs.Config{Lease: lease, Beat: lease / 6})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	open, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- k.Do(t.Context(), job("a", 1), func(ctx context.Context) error {
			return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
				if err := runs.FromContext(ctx).CompleteTx(ctx, tx); err != nil {
					return err
				}
				close(open)
				time.Sleep(4 * lease)
				return nil
			})
		})
	}()
	<-open
	j := job("b", 2)
	j.Mode = runs.Exclusive
	err = k.Do(t.Context(), j, func(ctx context.Context) error {
		select {
		case <-time.After(3 * lease):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	if err != nil {
		t.Errorf("the other run: %v", err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
