package live

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/fencedrun/fencedrun/chaos/proxy"
	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/sabotage"
	"github.com/fencedrun/fencedrun/internal/seam"
	"github.com/fencedrun/fencedrun/internal/services/private"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/pgledger"
	"github.com/fencedrun/fencedrun/ledger/redisledger"
	"github.com/fencedrun/fencedrun/runs"
)

// server is a database and what of it belongs to one test.
type server struct {
	name     string
	resends  bool // its client sends again by itself what got no answer
	protocol proxy.Protocol
	at       string // host:port
	// open opens the ledger over connections to host:port at.
	open func(t testing.TB, at string) ledger.Store
}

// servers returns the servers that a test runs on, each with a ledger of its own.
func servers(t *testing.T, f func(t *testing.T, s *server)) {
	t.Helper()
	t.Run("postgres", func(t *testing.T) { f(t, onPostgres(t)) })
	t.Run("redis", func(t *testing.T) { f(t, onRedis(t, 0)) })
	t.Run("redis, the client sends nothing twice", func(t *testing.T) { f(t, onRedis(t, -1)) })
}

func onPostgres(t testing.TB) *server {
	t.Helper()
	at, err := url.Parse(private.ServicePostgres.Need(t))
	if err != nil {
		t.Fatal(err)
	}
	schema := schemaOn(t, pool(t, at.String()))
	return &server{"postgres", false, proxy.Postgres, at.Host, func(t testing.TB, host string) ledger.Store {
		t.Helper()
		via := *at
		via.Host = host
		p := pool(t, via.String())
		store, err := pgledger.Open(t.Context(), p, &pgledger.Config{Schema: schema})
		if err != nil {
			t.Fatal(err)
		}
		return store
	}}
}

// pool opens a pool that is closed when the test ends.
func pool(t testing.TB, at string, change ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(at)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range change {
		c(config)
	}
	p, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// schemaOn makes a ledger's tables in a schema that is dropped when the test ends.
func schemaOn(t testing.TB, p *pgxpool.Pool) string {
	t.Helper()
	schema := "live_" + strings.ToLower(rand.Text()[:12])
	if err := pgledger.Migrate(t.Context(), p, schema); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := p.Exec(context.Background(), "drop schema "+schema+" cascade"); err != nil {
			t.Error(err)
		}
	})
	return schema
}

// onRedis takes how often go-redis sends a command again by itself: 0 its default, 3; -1 never.
func onRedis(t testing.TB, retries int) *server {
	t.Helper()
	options, err := redis.ParseURL(private.ServiceRedis.Need(t))
	if err != nil {
		t.Fatal(err)
	}
	prefix := "live-" + rand.Text()
	t.Cleanup(func() { removeKeys(t, options, prefix) })
	return &server{"redis", retries >= 0, proxy.Redis, options.Addr, func(t testing.TB, host string) ledger.Store {
		t.Helper()
		via := *options
		via.Addr = host
		via.ContextTimeoutEnabled = true
		via.ReadTimeout = 200 * time.Millisecond
		via.MaxRetries = retries
		client := redis.NewClient(&via)
		t.Cleanup(func() { _ = client.Close() })
		store, err := redisledger.Open(t.Context(), client, &redisledger.Config{Prefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		return store
	}}
}

func removeKeys(t testing.TB, at *redis.Options, prefix string) {
	t.Helper()
	client := redis.NewClient(at)
	defer client.Close()
	scan := client.Scan(context.Background(), 0, prefix+":*", 1000).Iterator()
	for scan.Next(context.Background()) {
		if err := client.Unlink(context.Background(), scan.Val()).Err(); err != nil {
			t.Error(err)
		}
	}
}

// keeper is a process: a keeper on a way of its own to the ledger. off are rules that it forgets.
func (s *server) keeper(t testing.TB, at string, off sabotage.Set, change ...func(*runs.Config)) *runs.Keeper {
	t.Helper()
	// Patience is for people: a test that asks again does so at once.
	config := &runs.Config{PollMin: time.Millisecond, PollMax: 10 * time.Millisecond, SettleTimeout: 2 * time.Second}
	for _, c := range change {
		c(config)
	}
	sm := *seam.Real()
	sm.Off = off
	k, err := runs.NewSeamed(s.open(t, at), config, &sm)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	return k
}

// provider is what effects write to: a list without any key. It decides what was done twice.
type provider struct {
	mu   sync.Mutex
	done map[string]int
}

func (p *provider) do(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done == nil {
		p.done = map[string]int{}
	}
	p.done[what]++
}

func (p *provider) times(what string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done[what]
}

func job(conversation string, id any) runs.Job {
	return runs.Job{
		Queue: "live", ID: fmt.Sprint(id), Conversation: conversation, Inbound: []string{"m1"}, Digest: "d",
		Reads: runs.AfterBegin,
	}
}

// replies is a handler that answers m1.
func (p *provider) replies(conversation string) func(context.Context) error {
	return func(ctx context.Context) error {
		return runs.FromContext(ctx).Once(ctx, runs.Effect{Intent: "reply", Key: runs.ID("m1")}, func(context.Context, *runs.Call) error {
			p.do(conversation)
			return nil
		})
	}
}

// state returns what the ledger says of a conversation's only effect.
func state(t testing.TB, k *runs.Keeper, conversation string) fence.State {
	t.Helper()
	h, err := k.History(t.Context(), conversation)
	if err != nil {
		t.Fatal(err)
	}
	if len(h.Effects) == 0 {
		return ""
	}
	return h.Effects[0].State()
}

// await asks until it is so.
func await(t testing.TB, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}
