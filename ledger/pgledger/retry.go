package pgledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	maxTries     = 12
	firstPause   = time.Millisecond
	longestPause = 100 * time.Millisecond
)

// undoing are the SQLSTATEs after which a statement, or its transaction, has done nothing and may be
// made again.
var undoing = []string{
	"23505", // unique violation: somebody else inserted the same row first
	"40001", // serialization failure
	"40P01", // deadlock detected
	"55P03", // lock not available: lock_timeout
}

// undone reports that what failed with err is known not to have happened, and may succeed if it is
// made again.
func undone(err error) bool {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return slices.Contains(undoing, e.Code)
	}
	return pgconn.SafeToRetry(err)
}

// retry makes a call again that is known not to have had an effect, a bounded number of times.
// Of what is not known the caller must judge: the ledger finds its own change by its nonce.
func (s *Store) retry(ctx context.Context, verb string, call func() error) error {
	pause := firstPause
	for try := 1; ; try++ {
		err := call()
		switch {
		case err == nil:
			return nil
		case s.closed.Load():
			return fmt.Errorf("pgledger: %s: %w", verb, errClosed)
		case ctx.Err() != nil || !undone(err):
			return fmt.Errorf("pgledger: %s: %w", verb, explain(err))
		case try == maxTries:
			return fmt.Errorf("pgledger: %s: %d tries: %w", verb, maxTries, err)
		}
		if err := s.seam.Sleep(ctx, pause/2+s.seam.Jitter(pause)); err != nil {
			return fmt.Errorf("pgledger: %s: %w", verb, err)
		}
		pause = min(2*pause, longestPause)
	}
}

// explain says in words what an error means for whoever has to mend it.
// missingTable reports whether there are no tables of this schema where a statement looked for them.
func missingTable(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (e.Code == "42P01" || e.Code == "3F000")
}

func explain(err error) error {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code {
	case "25006":
		return fmt.Errorf("the session is read-only: default_transaction_read_only is on, or the server is a standby: %w", err)
	case "26000", "42P05", "08P01":
		return fmt.Errorf("is there a pooler in front of the server? Then set Config.Pooler: %w", err)
	case "42P01", "3F000":
		return fmt.Errorf("a table is missing; has Migrate run? %w", err)
	}
	return err
}
