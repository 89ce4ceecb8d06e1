package redisledger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencedrun/fencedrun/internal/seam"
)

// Config says how a ledger uses Redis. Nil, and the zero value of each field, mean the defaults.
type Config struct {
	// Prefix begins the name of every key, with a colon behind it. Ledgers with different
	// prefixes know nothing of each other; a Keeper's namespace is the lighter way to keep
	// tenants apart. It holds no braces. Defaults to "fencedrun".
	Prefix string

	// Wait makes claims, ends, cancels and whatever else must not be lost wait until replicas
	// have them (WAIT). Defaults to nil: a failover may lose what was acknowledged in the last
	// moments, see the package's documentation. One failed replica too many then stops all
	// effects.
	Wait *Wait

	// WaitAOF makes the same changes wait until they are flushed to append-only files (WAITAOF),
	// which with appendfsync everysec takes up to a second. It needs Redis 7.2. Defaults to
	// nil: what a server flushes when is up to its appendfsync.
	WaitAOF *Wait

	// AcceptEviction accepts a server whose maxmemory-policy is not noeviction: when its memory
	// is full it may delete claims, and their effects are done a second time.
	AcceptEviction bool

	// AcceptNoAOF accepts a server without an append-only file (appendonly no): when it
	// restarts it has forgotten what happened since its last snapshot, or everything, and what
	// is delivered again is done again.
	AcceptNoAOF bool

	// MustExist makes Open fail with ErrNoLedger, instead of beginning a ledger, when nothing was
	// ever stored under Prefix: for tools that look at a ledger of somebody else's.
	MustExist bool

	// Sharded says that client is a proxy that shows several servers as one, such as Redis
	// Enterprise or Envoy: then no script touches keys of two hash tags. A
	// redis.ClusterClient needs no telling.
	Sharded bool

	// Logger is told what is wrong but no error. Defaults to slog.Default().
	Logger *slog.Logger
}

// ErrNoLedger is what Open fails with when Config.MustExist is set and there is no ledger.
var ErrNoLedger = errors.New("there is no ledger")

// Open opens the ledger in the Redis that client is connected to: a server, a Cluster or what
// Sentinel says is the master. client stays the caller's and is not closed. ctx bounds Open itself.
//
// It fails if the server, or any master of a Cluster, could lose claims without anybody noticing:
// see Config.AcceptEviction and Config.AcceptNoAOF. What a server does not allow to be looked at is
// logged as a warning.
func Open(ctx context.Context, client redis.UniversalClient, config *Config) (*Store, error) {
	s, err := open(ctx, client, config, seam.Real())
	if err != nil {
		return nil, fmt.Errorf("redisledger: open: %w", err)
	}
	return s, nil
}

// OpenSeamed is Open on another clock, for this module's own simulator and tests. All processes
// that share a ledger must agree on the clock.
func OpenSeamed(ctx context.Context, client redis.UniversalClient, config *Config, sm *seam.Seam) (*Store, error) {
	s, err := open(ctx, client, config, sm)
	if err != nil {
		return nil, fmt.Errorf("redisledger: open: %w", err)
	}
	s.clock = sm.Now
	return s, nil
}

// Connect is Open with a client of its own, which Close closes. address is redis://user:password@host:port/db,
// or rediss:// for TLS, with the options of redis.ParseURL; several hosts, separated by commas, are nodes of
// a Cluster.
func Connect(ctx context.Context, address string, config *Config) (*Store, error) {
	client, err := dial(address)
	if err != nil {
		return nil, fmt.Errorf("redisledger: connect: %w", err)
	}
	s, err := open(ctx, client, config, seam.Real())
	if err != nil {
		return nil, fmt.Errorf("redisledger: connect: %w", errors.Join(err, client.Close()))
	}
	s.own = true
	return s, nil
}

// Dial returns a client as Connect makes one, for a program that asks the server something else as
// well. It does not connect yet, and is the caller's to close.
func Dial(address string) (redis.UniversalClient, error) {
	client, err := dial(address)
	if err != nil {
		return nil, fmt.Errorf("redisledger: dial: %w", err)
	}
	return client, nil
}

// dial makes a client. Errors do not show the address: it may hold a password.
func dial(address string) (redis.UniversalClient, error) {
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok || scheme != "redis" && scheme != "rediss" && scheme != "unix" {
		return nil, errors.New("the address must begin with redis://, rediss:// or unix://")
	}
	end := len(rest)
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		end = i
	}
	hosts := strings.Split(rest[strings.LastIndex(rest[:end], "@")+1:end], ",")
	if scheme == "unix" || len(hosts) == 1 {
		o, err := redis.ParseURL(address)
		if err != nil {
			return nil, fmt.Errorf("address: %w", discreet(err))
		}
		o.ContextTimeoutEnabled = true
		return redis.NewClient(o), nil
	}
	if i := strings.IndexByte(rest[end:], '?'); rest[end:] != "" && rest[end:] != "/" && rest[end:] != "/0" && (i < 0 || i > 1 && rest[end:end+i] != "/0") {
		return nil, errors.New("address: several hosts are a Cluster, which has no database but 0")
	}
	first := scheme + "://" + rest[:strings.LastIndex(rest[:end], "@")+1] + hosts[0]
	query := ""
	if _, options, ok := strings.Cut(rest, "?"); ok {
		query = "&" + options
	}
	for _, host := range hosts[1:] {
		query = "&addr=" + url.QueryEscape(host) + query
	}
	o, err := redis.ParseClusterURL(first + "?" + query[1:])
	if err != nil {
		return nil, fmt.Errorf("address: %w", discreet(err))
	}
	o.ContextTimeoutEnabled = true
	return redis.NewClusterClient(o), nil
}

func discreet(err error) error {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		return u.Err
	}
	return err
}

func open(ctx context.Context, client redis.UniversalClient, config *Config, sm *seam.Seam) (*Store, error) {
	s := &Store{client: client, seam: sm, doubts: map[string]int{}}
	if config != nil {
		s.config = *config
	}
	if err := s.defaults(); err != nil {
		return nil, err
	}
	if isNil(client) {
		return nil, errors.New("client is nil")
	}
	switch c := client.(type) {
	case *redis.ClusterClient:
		s.cluster = c
	case *redis.Ring:
		return nil, errors.New("client is a redis.Ring, which forgets claims: it looks for them on another server when theirs is down")
	case *redis.Client:
		s.together = !s.config.Sharded
	}
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// isNil also finds the nil pointer of a variable that was never set.
func isNil(client redis.UniversalClient) bool {
	switch c := client.(type) {
	case nil:
		return true
	case *redis.Client:
		return c == nil
	case *redis.ClusterClient:
		return c == nil
	}
	return false
}

func (s *Store) defaults() error {
	c := &s.config
	if c.Prefix == "" {
		c.Prefix = "fencedrun"
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if strings.ContainsAny(c.Prefix, "{}") {
		return fmt.Errorf("Config.Prefix is %q: it must hold no braces", c.Prefix)
	}
	for _, w := range []struct {
		name string
		wait **Wait
	}{{"Wait", &c.Wait}, {"WaitAOF", &c.WaitAOF}} {
		if *w.wait == nil {
			continue
		}
		wait := **w.wait
		*w.wait = &wait
		if wait.Timeout == 0 {
			wait.Timeout = defaultWait
			(*w.wait).Timeout = defaultWait
		}
		switch {
		case wait.Timeout < time.Millisecond:
			return fmt.Errorf("Config.%s.Timeout is %v, below a millisecond", w.name, wait.Timeout)
		case wait.Local < 0 || wait.Local > 1:
			return fmt.Errorf("Config.%s.Local is %d, want 0 or 1", w.name, wait.Local)
		case wait.Local > 0 && w.name == "Wait":
			return fmt.Errorf("Config.%s.Local is set, which only Config.WaitAOF can do", w.name)
		case wait.Replicas < 0:
			return fmt.Errorf("Config.%s.Replicas is %d, below 0", w.name, wait.Replicas)
		case wait.Replicas+wait.Local == 0:
			return fmt.Errorf("set Config.%s.Replicas, without which it waits for nothing", w.name)
		}
	}
	return nil
}

// Close closes the client if Connect made it. It does not wait for calls that are under way.
func (s *Store) Close() error {
	if !s.own {
		return nil
	}
	err := s.client.Close()
	if errors.Is(err, redis.ErrClosed) {
		return nil
	}
	return err
}
