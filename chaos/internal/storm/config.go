package storm

import (
	"crypto/rand"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
)

// The queues.
const (
	Plain = "plain" // none: the coordinator hands jobs out by itself until their verdict is final
	River = "river"
	Asynq = "asynq"
)

// The kinds of servers and files.
const (
	sqlite   = "sqlite"
	postgres = "postgres"
	redisKV  = "redis"
)

// Config says what storm to run. The zero value of each field but Duration means its default.
type Config struct {
	// Ledger is where the ledger is: postgres://… or redis://…, without TLS, because the proxy
	// that cuts connections speaks none; or postgres or redis, a server that the storm starts on
	// this machine, freezes, kills, starts again, and removes in the end. Only such a server is
	// treated so. Defaults to a SQLite file in a folder of its own.
	Ledger string
	// Queue is Plain, River or Asynq. Defaults to Plain.
	Queue string
	// QueueURL is where the queue is: postgres://… for River, redis://… for Asynq, or postgres or
	// redis, as for Ledger, and the same server if Ledger says the same. Defaults to Ledger if
	// that can be, else for River to a SQLite file; Asynq needs one.
	QueueURL string
	// Duration is how long customers write and faults strike. What is left then is worked off
	// without faults. It must be positive.
	Duration time.Duration
	// Seed decides what strikes whom. When it does is up to the machine, so two storms of one
	// seed are alike, not equal.
	Seed uint64
	// Without lets handlers call the provider directly: what the storm does to a program that
	// does not use the library.
	Without bool
	// Workers is how many processes work. Defaults to 4.
	Workers int
	// Customers is how many conversations are held at a time. Defaults to 24.
	Customers int
	// Progress is told how it goes once a second. Defaults to nobody.
	Progress io.Writer
	// Terminal says that Progress can rewrite its last line.
	Terminal bool

	off string // a rule that the library is to forget, for a test
}

// SetupError says that a storm could not begin: a setting that cannot be meant, or a server that
// cannot be used.
type SetupError struct {
	Err   error
	Field string // of Config that has a value which cannot be meant; "" if it is none of these
}

// Error tells what is wrong.
func (e *SetupError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *SetupError) Unwrap() error { return e.Err }

// withDefaults returns a *SetupError if c cannot be meant.
func (c Config) withDefaults() (Config, error) {
	wrong := func(field, format string, args ...any) (Config, error) {
		return c, &SetupError{fmt.Errorf(format, args...), field}
	}
	if c.Queue == "" {
		c.Queue = Plain
	}
	if c.Workers == 0 {
		c.Workers = 4
	}
	if c.Customers == 0 {
		c.Customers = 24
	}
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	kind, err := kindOf("ledger", c.Ledger)
	switch {
	case err != nil:
		return wrong("Ledger", "%w", err)
	case c.Duration <= 0:
		return wrong("Duration", "storm: Config.Duration must be positive")
	case c.Workers < 2 || c.Workers > 100:
		return wrong("Workers", "storm: Config.Workers must be 2 to 100")
	case c.Customers < 1 || c.Customers > 10_000:
		return wrong("Customers", "storm: Config.Customers must be 1 to 10000")
	}
	want := map[string]string{River: postgres, Asynq: redisKV}[c.Queue]
	switch c.Queue {
	case Plain:
		if c.QueueURL != "" {
			return wrong("QueueURL", "a queue's URL means nothing with queue plain, which is no server")
		}
		return c, nil
	case River, Asynq:
	default:
		return wrong("Queue", "queue %q is none of plain, river and asynq", c.Queue)
	}
	if c.QueueURL == "" && kind == want {
		c.QueueURL = c.Ledger
	}
	have, err := kindOf("queue", c.QueueURL)
	switch {
	case err != nil:
		return wrong("QueueURL", "%w", err)
	case c.QueueURL == "" && c.Queue == Asynq:
		return wrong("QueueURL", "queue asynq lives on Redis: give its URL, such as redis://127.0.0.1:6379, or redis")
	case c.QueueURL != "" && have != want:
		return wrong("QueueURL", "queue %s lives on %s, and its URL names %s", c.Queue, want, have)
	}
	if c.Without {
		c.Ledger = "" // there is none
	}
	return c, nil
}

// kindOf returns the kind of server that a URL names, or that is to be started. Errors do not show
// the URL: it may hold a password.
func kindOf(what, address string) (string, error) {
	switch {
	case address == "":
		return sqlite, nil
	case address == postgres, address == redisKV:
		return address, nil
	case strings.HasPrefix(address, "postgres://"), strings.HasPrefix(address, "postgresql://"):
		config, err := pgxpool.ParseConfig(address)
		switch {
		case err != nil:
			return "", fmt.Errorf("the %s's URL is none of Postgres", what)
		case strings.HasPrefix(config.ConnConfig.Host, "/"):
			return "", fmt.Errorf("the %s's URL names a socket: name a host and a port, because a proxy goes in between", what)
		case config.ConnConfig.TLSConfig != nil && len(config.ConnConfig.Fallbacks) == 0:
			return "", fmt.Errorf("the %s's URL asks for TLS, which the proxy that cuts connections does not speak", what)
		}
		return postgres, nil
	case strings.HasPrefix(address, "redis://"):
		if _, err := redis.ParseURL(address); err != nil {
			return "", fmt.Errorf("the %s's URL is none of a single Redis server", what)
		}
		return redisKV, nil
	case strings.HasPrefix(address, "rediss://"):
		return "", fmt.Errorf("the %s's URL asks for TLS, which the proxy that cuts connections does not speak", what)
	}
	return "", fmt.Errorf("the %s's URL begins neither with postgres:// nor with redis://, and is neither postgres nor redis", what)
}

// hostOf returns the host:port of a URL that kindOf took.
func hostOf(kind, address string) string {
	if kind == postgres {
		if config, err := pgxpool.ParseConfig(address); err == nil {
			return fmt.Sprintf("%s:%d", config.ConnConfig.Host, config.ConnConfig.Port)
		}
	} else if options, err := redis.ParseURL(address); err == nil {
		return options.Addr
	}
	return ""
}

// named returns a URL whose connections carry a name, so that the server can be told to drop
// them, and lead to host if that is not empty.
func named(kind, address, name, host string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address // kindOf took it
	}
	if host != "" {
		u.Host = host
	}
	q := u.Query()
	switch kind {
	case postgres:
		q.Set("application_name", name)
		q.Set("sslmode", "disable")
		q.Set("pool_max_conns", "6")
	case redisKV:
		q.Set("client_name", name)
		q.Set("read_timeout", "400ms") // an answer that was swallowed is not waited for long
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// newTag names what a storm creates in servers.
func newTag() string { return "fencedrun_live_" + strings.ToLower(rand.Text()[:10]) }
