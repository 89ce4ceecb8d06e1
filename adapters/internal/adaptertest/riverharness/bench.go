// Package riverharness runs the real River client in virtual time, on a SQLite file or on a
// Postgres server. For tests only.
//
// Everything must be made and used inside one testing/synctest bubble: River
// reads the time it writes to the database from the bubble's clock.
package riverharness

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
	_ "modernc.org/sqlite" // the driver "sqlite"
)

// Tx is the transaction type of the harness's clients.
type Tx = *sql.Tx

// Args are the args of the harness's one job kind.
type Args struct {
	Name     string   `json:"name"`
	Payload  string   `json:"payload,omitempty"`
	Thread   string   `json:"thread,omitempty"`
	Messages []string `json:"messages,omitempty"`
}

// Kind implements [river.JobArgs].
func (Args) Kind() string { return "adaptertest" }

// Conversation names the conversation, as the adapter asks it.
func (a Args) Conversation() string { return a.Thread }

// Inbound names the inbound messages, as the adapter asks them.
func (a Args) Inbound() []string { return a.Messages }

// BenchOf is one database with a client that only inserts and inspects.
type BenchOf[TTx any] struct {
	T      testing.TB
	DB     *sql.DB // nil on Postgres
	Client *river.Client[TTx]

	driver riverdriver.Driver[TTx]
	schema string // of River's tables, "" none
	// exec runs a statement whose arguments are $1, $2; timeArg is how it takes a time.
	exec    func(query string, args ...any) error
	timeArg func(time.Time) any
}

// Bench is the one on a SQLite file.
type Bench = BenchOf[Tx]

// New starts a bench. insert is the configuration of its inserting client and
// may be nil. The bench is taken down when the test of the bubble ends.
func New(t testing.TB, insert *river.Config) *Bench {
	t.Helper()
	path := filepath.Join(t.TempDir(), "river.db")
	if err := os.WriteFile(path, template(t), 0o600); err != nil {
		t.Fatal(err)
	}
	return use(t, path, insert)
}

// NewIn is New in a database that exists, such as a ledger's: River's tables are added to it.
func NewIn(t testing.TB, path string, insert *river.Config) *Bench {
	t.Helper()
	migrate(t, path)
	return use(t, path, insert)
}

func use(t testing.TB, path string, insert *river.Config) *Bench {
	t.Helper()
	db, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	b := &Bench{
		T: t, DB: db, driver: riversqlite.New(db),
		exec: func(query string, args ...any) error {
			_, err := db.Exec(query, args...)
			return err
		},
		timeArg: func(t time.Time) any { return t.UTC().Format("2006-01-02 15:04:05.000") }, // as River writes it
	}
	b.Client = b.NewClient(insert)
	return b
}

func open(path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=synchronous(off)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // River's advice for SQLite
	return db, nil
}

var migrated struct {
	sync.Mutex
	file []byte
}

// template returns the bytes of a database that has River's tables.
func template(t testing.TB) []byte {
	t.Helper()
	migrated.Lock()
	defer migrated.Unlock()
	if migrated.file != nil {
		return migrated.file
	}
	path := filepath.Join(t.TempDir(), "template.db")
	migrate(t, path)
	var err error
	if migrated.file, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	return migrated.file
}

func migrate(t testing.TB, path string) {
	t.Helper()
	db, err := open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	migrator, err := rivermigrate.New(riversqlite.New(db), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := migrator.Migrate(context.Background(), rivermigrate.DirectionUp, nil); err != nil {
		t.Fatalf("migrate: %v", err)
	}
}

// bubble tells River the bubble's time, also for what it writes.
type bubble struct{}

func (bubble) Now() time.Time { return time.Now() }

func (bubble) NowOrNil() *time.Time {
	now := time.Now().UTC()
	return &now
}

// NewClient makes a client that is not started. config may be nil.
func (b *BenchOf[TTx]) NewClient(config *river.Config) *river.Client[TTx] {
	b.T.Helper()
	if config == nil {
		config = &river.Config{}
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	config.TestOnly = true
	config.Schema = b.schema
	config.Test.Time = bubble{}
	client, err := river.NewClient(b.driver, config)
	if err != nil {
		b.T.Fatalf("new river client: %v", err)
	}
	return client
}

// Start starts a worker process: a client that works the default queue. Ten
// workers, a fetch every two seconds and a retry delay of one second are filled in. The client is stopped
// and its jobs are canceled when the test ends.
func (b *BenchOf[TTx]) Start(config *river.Config, work func(context.Context, *river.Job[Args]) error) *river.Client[TTx] {
	b.T.Helper()
	return b.StartWorker(config, river.WorkFunc(work))
}

// StartWorker is [Bench.Start] for a worker that has more than a Work method.
func (b *BenchOf[TTx]) StartWorker(config *river.Config, worker river.Worker[Args]) *river.Client[TTx] {
	b.T.Helper()
	if config == nil {
		config = &river.Config{}
	}
	if config.Queues == nil {
		config.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 10}}
	}
	if config.FetchPollInterval == 0 {
		config.FetchPollInterval = 2 * time.Second
	}
	if config.RetryPolicy == nil {
		config.RetryPolicy = everySecond{}
	}
	// On SQLite River listens by asking every few milliseconds, which is most
	// of the work of a test in virtual time.
	config.PollOnly = true
	config.Workers = river.NewWorkers()
	river.AddWorker(config.Workers, worker)
	client := b.NewClient(config)
	if err := client.Start(context.Background()); err != nil {
		b.T.Fatalf("start river client: %v", err)
	}
	b.T.Cleanup(func() {
		if err := client.StopAndCancel(context.Background()); err != nil {
			b.T.Errorf("stop river client: %v", err)
		}
	})
	return client
}

type everySecond struct{}

func (everySecond) NextRetry(*rivertype.JobRow) time.Time { return time.Now().Add(time.Second) }

// Insert inserts a job or fails the test.
func (b *BenchOf[TTx]) Insert(args Args, opts *river.InsertOpts) *rivertype.JobRow {
	b.T.Helper()
	result, err := b.Client.Insert(context.Background(), args, opts)
	if err != nil {
		b.T.Fatalf("insert: %v", err)
	}
	return result.Job
}

// Row reads a job; nil if River no longer has it.
func (b *BenchOf[TTx]) Row(id int64) *rivertype.JobRow {
	b.T.Helper()
	row, err := b.Client.JobGet(context.Background(), id)
	if errors.Is(err, river.ErrNotFound) {
		return nil
	}
	if err != nil {
		b.T.Fatalf("read job %d: %v", id, err)
	}
	return row
}

// Exec edits the database behind River's back.
func (b *BenchOf[TTx]) Exec(query string, args ...any) {
	b.T.Helper()
	if err := b.exec(query, args...); err != nil {
		b.T.Fatalf("%s: %v", query, err)
	}
}

// Release makes a running job available again while its worker lives, as a
// rescue or a person with SQL does.
func (b *BenchOf[TTx]) Release(id int64) {
	b.T.Helper()
	b.Exec(`UPDATE `+b.table()+` SET state = 'available', scheduled_at = $1 WHERE id = $2 AND state = 'running'`, b.timeArg(time.Now()), id)
}

// Backdate makes a running job look as if it had been started earlier.
func (b *BenchOf[TTx]) Backdate(id int64, by time.Duration) {
	b.T.Helper()
	b.Exec(`UPDATE `+b.table()+` SET attempted_at = $1 WHERE id = $2`, b.timeArg(time.Now().Add(-by)), id)
}

func (b *BenchOf[TTx]) table() string {
	if b.schema == "" {
		return "river_job"
	}
	return b.schema + ".river_job"
}
