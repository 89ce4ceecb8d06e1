package sqliteledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the driver

	"github.com/fencedrun/fencedrun/internal/seam"
)

// Config says how a ledger's file is used. Nil, and the zero value of each field, mean the
// defaults.
type Config struct {
	// BusyTimeout is how long a call waits for other processes that write, beyond what its
	// own context allows. Then it fails, and the effect it was to claim is not called. Too
	// short makes claims fail under load. Defaults to 10 seconds.
	BusyTimeout time.Duration

	// Readers is how many connections read at the same time. Each costs about 2 MB of
	// memory. Defaults to 4.
	Readers int

	// FlushAll flushes every change to the disk before it is acknowledged, settles too: a
	// power cut then never makes a committed effect unknown. It about halves the rate of
	// effects. Defaults to false: only what must never be lost is flushed, see the package's
	// documentation.
	FlushAll bool

	// MustExist makes Open fail with ErrNoLedger, instead of making or migrating one, when path
	// has no ledger of this version: for tools that look at a ledger of somebody else's.
	MustExist bool
}

// ErrNoLedger is what Open fails with when Config.MustExist is set and path has no ledger of this
// version.
var ErrNoLedger = errors.New("there is no ledger")

const (
	defaultBusyTimeout = 10 * time.Second
	defaultReaders     = 4
)

// Open opens the ledger in the file at path, which is created if it does not exist; its
// directory is not. Tables are created and migrated as needed, which any number of processes may
// do at once. ctx bounds Open itself.
//
// It fails if the file is something else than a ledger of this library, if it was written by a
// newer version of it, or if it may not be written.
func Open(ctx context.Context, path string, config *Config) (*Store, error) {
	return open(ctx, path, config, seam.Real(), false, "")
}

// OpenSeamed is Open on another clock, for this module's own simulator and tests. All
// processes that share a file must agree on the clock.
func OpenSeamed(ctx context.Context, path string, config *Config, s *seam.Seam) (*Store, error) {
	return open(ctx, path, config, s, true, "")
}

func open(ctx context.Context, path string, config *Config, s *seam.Seam, ownClock bool, extra string) (*Store, error) {
	c := Config{}
	if config != nil {
		c = *config
	}
	if c.BusyTimeout == 0 {
		c.BusyTimeout = defaultBusyTimeout
	}
	if c.Readers == 0 {
		c.Readers = defaultReaders
	}
	dsn, err := dataSource(path, c)
	if err != nil {
		return nil, fmt.Errorf("sqliteledger: open: %w", err)
	}
	if c.MustExist {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("sqliteledger: open %s: %w: there is no such file", path, ErrNoLedger)
		}
		extra += "&mode=rw" // nor makes SQLite one, when the file is gone by then
	}
	store := &Store{
		config: c, seam: s, dsn: dsn + extra, path: path, asks: map[*query]*sql.Stmt{},
		turn: s.NewLock(), flushed: syncFull, unflushed: syncNormal,
	}
	if ownClock {
		store.clock = s.Now
	}
	if err := store.prepare(ctx); err != nil {
		return nil, fmt.Errorf("sqliteledger: open %s: %w", path, errors.Join(explain(err), store.Close()))
	}
	return store, nil
}

// dataSource checks the arguments of Open and says how the driver calls the file.
func dataSource(path string, c Config) (string, error) {
	switch {
	case path == "":
		return "", errors.New("path is empty")
	case strings.Contains(path, ":memory:"):
		return "", errors.New("path is " + strconv.Quote(path) + ": a ledger in memory is package memledger")
	case strings.HasPrefix(path, "file:"):
		return "", errors.New("path is " + strconv.Quote(path) + ": give the name of a file, not a URI")
	case strings.ContainsRune(path, 0):
		return "", errors.New("path holds a NUL")
	case c.BusyTimeout < 0:
		return "", fmt.Errorf("Config.BusyTimeout is %v, below 0", c.BusyTimeout)
	case c.Readers < 0:
		return "", fmt.Errorf("Config.Readers is %d, below 0", c.Readers)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("path: %w", err)
	}
	abs = filepath.ToSlash(abs)
	if !strings.HasPrefix(abs, "/") {
		abs = "/" + abs // a Windows drive
	}
	// The wait for a lock is our own: SQLite's sleeps too long to be fair, and cannot be
	// driven through the seam.
	return (&url.URL{Scheme: "file", OmitHost: true, Path: abs}).String() + "?_busy_timeout=0&_dqs=0", nil
}

// prepare opens the connections, and makes the file a ledger of this version if it may.
func (s *Store) prepare(ctx context.Context) error {
	s.readers = s.pool("&_query_only=1", s.config.Readers)
	current := false
	err := s.alone(ctx, func(ctx context.Context) error {
		// Nothing is changed in a file that is not ours.
		version, err := s.version(ctx)
		if err != nil {
			return err
		}
		if current = version == len(migrations); !current && s.config.MustExist {
			return fmt.Errorf("%w of this version: its tables are of version %d and this library needs %d", ErrNoLedger, version, len(migrations))
		}
		// WAL is a property of the file. It is set outside transactions only.
		var mode string
		err = s.writer.conn.QueryRowContext(ctx, "pragma journal_mode = wal").Scan(&mode)
		if err == nil && mode != "wal" {
			err = fmt.Errorf("journal mode %s cannot be made wal", mode)
		}
		return err
	})
	if err != nil {
		return err
	}
	if !current {
		if err := s.write(ctx, true, func(t *tx) (bool, error) { return true, s.migrate(t.ctx) }); err != nil {
			return err
		}
	}
	return s.alone(ctx, func(ctx context.Context) error {
		_, err := s.writer.exec(ctx, writable)
		if isBusy(err) {
			return nil // it would have failed for another reason first
		}
		return err
	})
}

func (s *Store) pool(options string, connections int) *sql.DB {
	db, err := sql.Open("sqlite", s.dsn+options)
	if err != nil {
		panic("sqliteledger: " + err.Error()) // the driver is registered: it is imported
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db
}
