package pgledger

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencedrun/fencedrun/internal/seam"
)

// DefaultSchema is the schema of a ledger whose Config names none.
const DefaultSchema = "fencedrun"

// ErrNotMigrated is what Open fails with when the schema has no tables of a ledger, or those of
// an older version of this library.
var ErrNotMigrated = errors.New("run pgledger.Migrate")

// Config says where a ledger is and how it is reached. Nil, and the zero value of each field, mean
// the defaults.
type Config struct {
	// Schema is the schema that holds the ledger's tables: letters of ASCII, digits, "_" and
	// "-", at most 63, starting with a letter or "_". Ledgers in several schemas know nothing
	// of each other. Defaults to DefaultSchema.
	Schema string

	// FlushAll waits for the server's flush before a settle is acknowledged too, as for a claim:
	// a crash of the server then never makes a committed effect unknown. It about halves
	// the rate of effects. Defaults to false: only what must never be lost is waited for, see
	// the package's documentation.
	FlushAll bool

	// Pooler says that the connections go through PgBouncer in transaction mode, or something
	// like it. The store's statements are then sent in a mode of pgx that leaves nothing in
	// the session, cache_describe or exec, whatever the pool's own default is. They cost the
	// server a plan each. Defaults to false; Open refuses a pooler that it detects if the mode
	// of the statements is not safe behind one.
	Pooler bool

	// ExecMode is how pgx sends the store's statements, if neither the pool's default nor what
	// Pooler chooses is wanted. QueryExecModeCacheStatement is right behind a pooler in session
	// mode, and behind PgBouncer 1.21 and newer with max_prepared_statements large enough; Open
	// believes it. QueryExecModeDescribeExec is refused behind a pooler: it fails at random.
	// Defaults to 0: the pool's default, or what Pooler chooses.
	ExecMode pgx.QueryExecMode
}

// Connect opens the ledger in the database at url, a URL or a list of key=value as
// pgxpool.ParseConfig takes it, with a pool of its own, which Close closes. See [Open].
func Connect(ctx context.Context, url string, config *Config) (*Store, error) {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("pgledger: connect: %w", err)
	}
	s, err := Open(ctx, pool, config)
	if err != nil {
		pool.Close()
		return nil, err
	}
	s.owned = pool
	return s, nil
}

// Open opens the ledger in the database that pool connects to. The pool stays the caller's, who
// closes it after the Store. ctx bounds Open itself.
//
// It fails, before anything depends on the ledger, if the server cannot be reached, if Migrate has
// not run or a newer version of this library has migrated, if the session is read-only (a standby,
// or default_transaction_read_only), if its role may not write the tables, or if there is a pooler
// that the mode of the statements is not safe with.
func Open(ctx context.Context, pool *pgxpool.Pool, config *Config) (*Store, error) {
	return open(ctx, pool, config, seam.Real())
}

func open(ctx context.Context, pool *pgxpool.Pool, config *Config, s *seam.Seam) (*Store, error) {
	c := Config{}
	if config != nil {
		c = *config
	}
	if c.Schema == "" {
		c.Schema = DefaultSchema
	}
	if err := checkSchema(c.Schema); err != nil {
		return nil, fmt.Errorf("pgledger: open: Config.Schema is %q: %w", c.Schema, err)
	}
	if c.ExecMode < 0 || c.ExecMode > pgx.QueryExecModeSimpleProtocol {
		return nil, fmt.Errorf("pgledger: open: Config.ExecMode is %d: no mode of pgx", c.ExecMode)
	}
	if pool == nil {
		return nil, errors.New("pgledger: open: pool is nil")
	}
	store := &Store{config: c, seam: s, pool: pool, texts: textsFor(c.Schema), mode: pgx.QueryExecModeExec}
	if err := store.check(ctx); err != nil {
		return nil, fmt.Errorf("pgledger: open: %w", explain(err))
	}
	return store, nil
}

func checkSchema(schema string) error {
	for i, r := range schema {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r == '_':
		case i > 0 && (r >= '0' && r <= '9' || r == '-'):
		default:
			return errors.New(`use letters of ASCII, digits, "_" and "-", starting with a letter or "_"`)
		}
	}
	switch {
	case schema == "":
		return errors.New("it is empty")
	case len(schema) > 63:
		return errors.New("it is longer than the 63 bytes that Postgres knows")
	case strings.HasPrefix(schema, "pg_"):
		return errors.New("names in pg_ are Postgres's own")
	}
	return nil
}

// session is what check.sql says.
type session struct {
	backend                     uint32
	readOnly, standby, migrated bool
	database, role              string
}

// check looks whether the store can work, and settles on the mode of its statements. Its own are
// sent in one that is safe whatever lies between.
func (s *Store) check(ctx context.Context) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("the server cannot be reached: %w", err)
	}
	defer conn.Release()
	var is session
	err = conn.QueryRow(ctx, s.texts.check, s.with(nil)...).Scan(&is.backend, &is.readOnly, &is.standby, &is.database, &is.role, &is.migrated)
	if err != nil {
		return err
	}
	switch {
	case is.standby:
		return errors.New("the server is a standby: the ledger must be written")
	case is.readOnly:
		return errors.New("the session is read-only (default_transaction_read_only is on): the ledger must be written")
	case !is.migrated:
		return fmt.Errorf("database %s has no ledger in schema %s: %w once, or the SQL of pgledger.MigrationSQL",
			is.database, s.config.Schema, ErrNotMigrated)
	}
	var version int
	var writable *bool
	if err := conn.QueryRow(ctx, s.texts.version, s.with(nil)...).Scan(&version, &s.identity, &writable); err != nil {
		return err
	}
	switch {
	case version > len(migrations):
		return fmt.Errorf("the tables in schema %s are of version %d and this library knows %d: a newer version has migrated them",
			s.config.Schema, version, len(migrations))
	case version < len(migrations):
		return fmt.Errorf("the tables in schema %s are of version %d and this library needs %d: %w",
			s.config.Schema, version, len(migrations), ErrNotMigrated)
	case writable == nil || !*writable:
		return fmt.Errorf("role %s may not select, insert, update and delete in the tables of schema %s", is.role, s.config.Schema)
	}
	return s.chooseMode(conn.Conn(), is.backend != conn.Conn().PgConn().PID())
}

// chooseMode settles on how statements are sent. A pooler gives itself away by another process id
// than the one that answers.
func (s *Store) chooseMode(conn *pgx.Conn, detected bool) error {
	s.mode = s.config.ExecMode
	if s.mode == 0 {
		s.mode = conn.Config().DefaultQueryExecMode
		if s.config.Pooler {
			s.mode = pgx.QueryExecModeCacheDescribe
			if conn.Config().DescriptionCacheCapacity <= 0 {
				s.mode = pgx.QueryExecModeExec
			}
		}
	}
	behind := detected || s.config.Pooler
	told := s.config.ExecMode == pgx.QueryExecModeCacheStatement
	if behind && (s.mode == pgx.QueryExecModeDescribeExec || s.mode == pgx.QueryExecModeCacheStatement && !told) {
		return fmt.Errorf("there is a pooler in front of the server, and pgx's mode %q is not safe behind one in transaction mode: "+
			"set Config.Pooler; if the pooler is in session mode, or is PgBouncer 1.21 or newer with max_prepared_statements, "+
			"set Config.ExecMode to pgx.QueryExecModeCacheStatement instead", s.mode)
	}
	// pgx sends a batch in the mode of the connection, and in no other.
	s.batches = s.mode == conn.Config().DefaultQueryExecMode
	return nil
}

// beats returns the pool for renewals. It is opened when it is needed, by the first of those
// who need it at once.
func (s *Store) beats(ctx context.Context) (*pgxpool.Pool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return nil, errClosed
	}
	if s.beating != nil {
		return s.beating, nil
	}
	config := s.pool.Config().Copy()
	config.MaxConns, config.MinConns, config.MinIdleConns = maxBeats, 0, 0
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	s.beating = pool
	return pool, nil
}

// maxBeats bounds the connections for renewals: a keeper renews with one statement at a time, and
// a second is for one that hangs.
const maxBeats = 2

// unconnected reports that there was no connection to be had, so that nothing was asked.
func unconnected(err error) bool {
	var e *pgconn.ConnectError
	return errors.As(err, &e)
}
