package runs_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencedrun/fencedrun/ledger/memledger"
	"github.com/fencedrun/fencedrun/ledger/sqliteledger"
	"github.com/fencedrun/fencedrun/runs"
)

// shop is a service whose tables are in the ledger's own database.
type shop struct {
	*testing.T
	*runs.Keeper
	db     *sql.DB
	events []runs.Event
}

func newShop(t *testing.T) *shop {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shop.db")
	store, err := sqliteledger.Open(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &shop{T: t}
	s.Keeper, err = runs.New(store, &runs.Config{Observer: func(_ context.Context, e runs.Event) { s.events = append(s.events, e) }})
	if err != nil {
		t.Fatal(err)
	}
	s.db, err = sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.db.Close(), s.Close()); err != nil {
			t.Error(err)
		}
	})
	if _, err := s.db.ExecContext(t.Context(), "create table credit (who text)"); err != nil { // no unique key: it would hide a duplicate
		t.Fatal(err)
	}
	return s
}

func (s *shop) begin() *sql.Tx {
	s.Helper()
	tx, err := s.db.BeginTx(s.Context(), nil)
	if err != nil {
		s.Fatal(err)
	}
	return tx
}

func (s *shop) commit(tx *sql.Tx) {
	s.Helper()
	if err := tx.Commit(); err != nil {
		s.Fatal(err)
	}
}

func (s *shop) rollback(tx *sql.Tx) {
	s.Helper()
	if err := tx.Rollback(); err != nil {
		s.Fatal(err)
	}
}

// pays is the effect: a write in the service's own table.
func pays(tx *sql.Tx, who string) func(context.Context, *runs.Call) (string, error) {
	return func(ctx context.Context, call *runs.Call) (string, error) {
		_, err := tx.ExecContext(ctx, "insert into credit values (?)", who)
		return "paid " + who + " under " + call.IdempotencyKey[:4], err
	}
}

func (s *shop) paid(want int) {
	s.Helper()
	var got int
	if err := s.db.QueryRowContext(s.Context(), "select count(*) from credit").Scan(&got); err != nil {
		s.Fatal(err)
	}
	if got != want {
		s.Errorf("%d credits, want %d", got, want)
	}
}

func (s *shop) state(want string) {
	s.Helper()
	h, err := s.History(s.Context(), "c")
	if err != nil {
		s.Fatal(err)
	}
	got := "none"
	for _, e := range h.Effects {
		got = string(e.State())
	}
	if got != want {
		s.Errorf("the effect is %s, want %s", got, want)
	}
}

var credit = runs.Intent[string]{Name: "credit", Distinct: true}

func (s *shop) do(id string, handler func(ctx context.Context) error) error {
	s.Helper()
	job := runs.Job{Queue: "q", ID: id, Conversation: "c", NoInbound: true, Reads: runs.AfterBegin, Digest: "d"}
	return s.Do(s.Context(), job, handler)
}

func TestAnEffectAndItsRecordCommitTogether(t *testing.T) {
	s := newShop(t)
	for _, delivery := range []string{"first", "again"} {
		err := s.do("1", func(ctx context.Context) error {
			tx := s.begin()
			got, err := credit.OnceTx(ctx, tx, runs.Key("order", "A"), pays(tx, "A"))
			if err != nil || got != "paid A under fr1_" {
				t.Errorf("%s: %q, %v", delivery, got, err)
			}
			s.commit(tx)
			return errors.New("again")
		})
		if err == nil {
			t.Error("no error")
		}
	}
	s.paid(1)
	s.state("committed")
	// Outside the transaction it is what it always was.
	err := s.do("2", func(ctx context.Context) error {
		got, err := credit.Once(ctx, runs.Key("order", "A"), func(context.Context, *runs.Call) (string, error) {
			t.Error("called again")
			return "", nil
		})
		if got != "paid A under fr1_" {
			t.Errorf("replayed %q", got)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestARolledBackEffectNeverHappened(t *testing.T) {
	s := newShop(t)
	err := s.do("1", func(ctx context.Context) error {
		tx := s.begin()
		if _, err := credit.OnceTx(ctx, tx, runs.Key("order", "A"), pays(tx, "A")); err != nil {
			t.Error(err)
		}
		s.rollback(tx)
		s.paid(0)
		s.state("none")
		// The same run may do it now: nothing is unknown.
		tx = s.begin()
		if _, err := credit.OnceTx(ctx, tx, runs.Key("order", "A"), pays(tx, "A")); err != nil {
			t.Error(err)
		}
		s.commit(tx)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	s.paid(1)
	s.state("committed")
}

func TestAnEffectThatFailsInTheTransactionLeavesNoRecord(t *testing.T) {
	s := newShop(t)
	broken := errors.New("broken")
	err := s.do("1", func(ctx context.Context) error {
		tx := s.begin()
		defer func() { s.rollback(tx) }()
		return runs.FromContext(ctx).OnceTx(ctx, tx, runs.Effect{Intent: "credit", Key: runs.ID("A")}, func(context.Context, *runs.Call) error {
			return broken
		})
	})
	if !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	s.state("none")
}

func TestTheRulesDecideInTheTransactionToo(t *testing.T) {
	s := newShop(t)
	reply := runs.Effect{Intent: "reply", Key: runs.ID("m1")}
	silent := func(context.Context, *runs.Call) error { return nil }
	if err := s.OnceOn(reply, silent); err != nil {
		t.Fatal(err)
	}
	tx := s.begin()
	defer func() { s.rollback(tx) }()
	again := runs.Effect{Intent: "reply", Key: runs.Key("words", 2), Answers: []string{"m1"}}
	err := s.OnceTx(t.Context(), tx, "c", again, func(context.Context, *runs.Call) error {
		t.Error("answered twice")
		return nil
	})
	if refused := asRefused(err); refused == nil || refused.Reason != "already_answered" {
		t.Errorf("%v", err)
	}
	refusals := 0
	for _, e := range s.events {
		if e.Kind == "refused" {
			refusals++
		}
	}
	if refusals != 1 {
		t.Errorf("the observer was told of %d refusals", refusals)
	}
}

func (s *shop) OnceOn(e runs.Effect, fn func(context.Context, *runs.Call) error) error {
	return s.Keeper.Once(s.Context(), "c", e, fn)
}

func asRefused(err error) *runs.RefusedError {
	refused, _ := errors.AsType[*runs.RefusedError](err)
	return refused
}

func TestWhatWasRolledBackHidesNothingThatOthersWrite(t *testing.T) {
	// The numbers that a rolled back write drew are drawn again, by somebody else.
	s := newShop(t)
	silent := func(context.Context, *runs.Call) error { return nil }
	_ = s.do("1", func(ctx context.Context) error {
		tx := s.begin()
		for _, order := range []string{"A", "B", "C"} {
			if _, err := credit.OnceTx(ctx, tx, runs.Key("order", order), pays(tx, order)); err != nil {
				t.Error(err)
			}
			// A replay of what is not committed yet must leave no trace either.
			if _, err := credit.OnceTx(ctx, tx, runs.Key("order", order), pays(tx, order)); err != nil {
				t.Error(err)
			}
		}
		s.rollback(tx)
		for _, note := range []string{"x", "y", "z"} {
			if err := s.OnceOn(runs.Effect{Intent: "note", Key: runs.ID(note)}, silent); err != nil {
				t.Error(err)
			}
		}
		err := runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: "tag", Key: runs.ID("t")}, silent)
		if refused := asRefused(err); refused == nil || refused.Reason != "conversation_changed" || len(refused.Conflicts) != 3 {
			t.Errorf("%v", err)
		}
		return err
	})
	s.paid(0)
}

func TestTheRunEndsWithItsEffectsOrNotAtAll(t *testing.T) {
	for _, end := range []string{"commit", "rollback"} {
		t.Run(end, func(t *testing.T) {
			s := newShop(t)
			entered := 0
			handler := func(ctx context.Context) error {
				entered++
				tx := s.begin()
				if _, err := credit.OnceTx(ctx, tx, runs.Key("order", "A"), pays(tx, "A")); err != nil {
					t.Error(err)
				}
				if err := runs.FromContext(ctx).CompleteTx(ctx, tx); err != nil {
					t.Error(err)
				}
				if end == "rollback" && entered == 1 {
					s.rollback(tx)
					return errors.New("rolled back")
				}
				s.commit(tx)
				return nil
			}
			err := s.do("1", handler)
			if (err == nil) != (end == "commit") {
				t.Error(err)
			}
			if err := s.do("1", handler); err != nil {
				t.Error(err)
			}
			if want := map[string]int{"commit": 1, "rollback": 2}[end]; entered != want {
				t.Errorf("the handler was entered %d times, want %d", entered, want)
			}
			s.paid(1)
		})
	}
}

func TestAReplacedDeliveryCompletesNothing(t *testing.T) {
	s := newShop(t)
	_ = s.do("1", func(ctx context.Context) error {
		// The queue gave the job away, and its other delivery is at work.
		return s.do("1", func(context.Context) error {
			tx := s.begin()
			defer func() { s.rollback(tx) }()
			err := runs.FromContext(ctx).CompleteTx(ctx, tx)
			if refused := asRefused(err); refused == nil || refused.Reason != "superseded" {
				t.Errorf("%v", err)
			}
			if _, err := credit.OnceTx(ctx, tx, runs.Key("order", "A"), pays(tx, "A")); asRefused(err) == nil {
				t.Errorf("%v", err)
			}
			return nil
		})
	})
	s.paid(0)
}

func TestAnUnresolvedEffectKeepsTheRunFromCompleting(t *testing.T) {
	s := newShop(t)
	_ = s.do("1", func(ctx context.Context) error {
		_, _ = credit.Once(ctx, runs.ID("elsewhere"), func(context.Context, *runs.Call) (string, error) {
			return "", errors.New("timeout")
		})
		tx := s.begin()
		defer func() { s.rollback(tx) }()
		if refused := asRefused(runs.FromContext(ctx).CompleteTx(ctx, tx)); refused == nil || refused.Reason != "unresolved" {
			t.Errorf("%v", refused)
		}
		return nil
	})
}

func TestATransactionThatCannotBeUsedSaysWhy(t *testing.T) {
	s := newShop(t)
	other, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "other.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	foreign, err := other.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = foreign.Rollback() }()
	memory, err := runs.New(memledger.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	never := func(context.Context, *runs.Call) error {
		t.Error("called")
		return nil
	}
	own := s.begin()
	defer func() { s.rollback(own) }()
	effect := runs.Effect{Intent: "credit", Key: runs.ID("A")}
	for name, c := range map[string]struct {
		keeper *runs.Keeper
		tx     any
		wait   bool
		want   string
	}{
		"not a transaction": {s.Keeper, "tx", false, "fencedrun: claim in a transaction: the ledger cannot write in this transaction: tx is a string, not a *sql.Tx"},
		"nil":               {s.Keeper, (*sql.Tx)(nil), false, "fencedrun: claim in a transaction: the ledger cannot write in this transaction: tx is nil"},
		"another database":  {s.Keeper, foreign, false, "fencedrun: claim in a transaction: the ledger cannot write in this transaction: it is on the file"},
		"memory":            {memory, own, false, "fencedrun: claim in a transaction: the ledger cannot write in this transaction: *memledger.Store does not offer it; pgledger and sqliteledger do"},
		"wait":              {s.Keeper, own, true, "fencedrun: credit: Wait in a transaction: whoever is waited for could never settle, this transaction locks the conversation"},
	} {
		e := effect
		if c.wait {
			e.Wait = 1
		}
		if err := c.keeper.OnceTx(t.Context(), c.tx, "c", e, never); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := memory.OnceTx(t.Context(), own, "c", effect, never); !errors.Is(err, runs.ErrNoJoin) {
		t.Errorf("%v", err)
	}
	var none *runs.Run
	if err := none.OnceTx(t.Context(), own, effect, never); asRefused(err) == nil {
		t.Errorf("%v", err)
	}
	if err := none.CompleteTx(t.Context(), own); asRefused(err) == nil {
		t.Errorf("%v", err)
	}
}

func TestARedeliveryGoesOnBehindWhatItsTransactionsDid(t *testing.T) {
	// Two lines are paid in a transaction each, and the worker dies in between.
	s := newShop(t)
	entered := 0
	handler := func(ctx context.Context) error {
		entered++
		for _, order := range []string{"A", "B"} {
			tx := s.begin()
			if _, err := credit.OnceTx(ctx, tx, runs.Key("order", order), pays(tx, order)); err != nil {
				s.rollback(tx)
				return err
			}
			s.commit(tx)
			if entered == 1 {
				return errors.New("died")
			}
		}
		return nil
	}
	if err := s.do("1", handler); err == nil {
		t.Error("no error")
	}
	if err := s.do("1", handler); err != nil {
		t.Error(err)
	}
	s.paid(2)
}

func TestAnEndInATransactionIsToldOnceItIsTrue(t *testing.T) {
	for _, end := range []string{"commit", "rollback"} {
		t.Run(end, func(t *testing.T) {
			s := newShop(t)
			job := runs.Job{Queue: "q", ID: "1", Conversation: "c", Inbound: []string{"m1"}, Reads: runs.AfterBegin, Digest: "d"}
			err := s.Do(t.Context(), job, func(ctx context.Context) error {
				tx := s.begin()
				if err := runs.FromContext(ctx).CompleteTx(ctx, tx); err != nil {
					t.Error(err)
				}
				if end == "rollback" {
					s.rollback(tx)
				} else {
					s.commit(tx)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
			told := map[runs.EventKind]int{}
			for _, e := range s.events {
				told[e.Kind]++
			}
			// Nobody answered m1, and the run has ended: both are said, and once.
			if told[runs.EventUnanswered] != 1 || told[runs.EventEnded] != 1 {
				t.Errorf("told %v", told)
			}
		})
	}
}

func TestATransactionOnAnotherLedgersFileIsRefused(t *testing.T) {
	one, other := newShop(t), newShop(t)
	tx := other.begin()
	defer func() { other.rollback(tx) }()
	err := one.OnceTx(t.Context(), tx, "c", runs.Effect{Intent: "credit", Key: runs.ID("A")}, func(context.Context, *runs.Call) error {
		t.Error("called")
		return nil
	})
	if !errors.Is(err, runs.ErrNoJoin) || !strings.Contains(err.Error(), "not on the ledger's") {
		t.Error(err)
	}
}

func TestNothingIsProbedInATransaction(t *testing.T) {
	s := newShop(t)
	asked := 0
	in := runs.Intent[int]{Name: "credit", Timeout: 1, ClaimDeadline: 2, Probe: func(context.Context, runs.Question) (runs.Found[int], error) {
		asked++
		return runs.Found[int]{}, nil
	}}
	keeper := s.Keeper
	_, err := in.OnceOn(t.Context(), keeper, "c", runs.ID("x"), func(context.Context, *runs.Call) (int, error) { return 0, errNoAnswer }, runs.With{Timeout: 1e6, ClaimDeadline: 1e9})
	if err == nil {
		t.Fatal("no error")
	}
	tx := s.begin()
	defer func() { _ = tx.Rollback() }()
	_, err = in.OnceTxOn(t.Context(), keeper, tx, "c", runs.ID("x"), func(context.Context, *runs.Call) (int, error) { return 0, nil })
	if !errors.Is(err, runs.ErrAmbiguous) || asked != 0 {
		t.Errorf("got %v, probed %d times", err, asked)
	}
}
