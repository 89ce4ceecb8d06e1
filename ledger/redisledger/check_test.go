package redisledger_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/internal/services/private"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/redisledger"
)

// Sentinel's client is a redis.Client.
var _ redis.UniversalClient = redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}})

func wantError(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one with %q", words)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error %q does not say %q", err, word)
		}
	}
}

func TestAServerThatForgetsIsRefusedUnlessAccepted(t *testing.T) {
	client := own(t)
	ctx := t.Context()
	set := func(name, value string) {
		t.Helper()
		if err := client.ConfigSet(ctx, name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	open := func(c redisledger.Config) (string, error) {
		var log bytes.Buffer
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		_, err := redisledger.Open(ctx, client, &c)
		return log.String(), err
	}
	if log, err := open(redisledger.Config{}); err != nil || log != "" {
		t.Errorf("a server as it must be: %v, %s", err, log)
	}
	for _, policy := range []string{"allkeys-lru", "volatile-lru", "volatile-ttl"} {
		set("maxmemory-policy", policy)
		_, err := open(redisledger.Config{AcceptNoAOF: true})
		wantError(t, err, "redisledger: open: ", "maxmemory-policy is "+policy, "noeviction", "Config.AcceptEviction")
		if _, err := open(redisledger.Config{AcceptEviction: true}); err != nil {
			t.Errorf("eviction is accepted: %v", err)
		}
	}
	set("maxmemory-policy", "noeviction")
	set("appendonly", "no")
	_, err := open(redisledger.Config{AcceptEviction: true})
	wantError(t, err, "appendonly is no", "Config.AcceptNoAOF")
	if _, err := open(redisledger.Config{AcceptNoAOF: true}); err != nil {
		t.Errorf("no file is accepted: %v", err)
	}
	set("appendonly", "yes")
	set("appendfsync", "no")
	if log, err := open(redisledger.Config{}); err != nil || !strings.Contains(log, "appendfsync is no") {
		t.Errorf("appendfsync no: %v, log: %s", err, log)
	}
}

// Managed servers forbid CONFIG. What INFO says is enough; without that too it is a warning.
func TestWhatMayNotBeLookedAtIsAWarning(t *testing.T) {
	server := own(t)
	ctx := t.Context()
	for _, rules := range [][]any{
		{"acl", "setuser", "managed", "on", "nopass", "~*", "+@all", "-config"},
		{"acl", "setuser", "blind", "on", "nopass", "~*", "+@all", "-config", "-info"},
	} {
		if err := server.Do(ctx, rules...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	open := func(user string) (string, error) {
		client := closed(t, redis.NewClient(&redis.Options{Addr: server.Options().Addr, Username: user, Password: "x"}))
		var log bytes.Buffer
		_, err := redisledger.Open(ctx, client, &redisledger.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		return log.String(), err
	}
	if log, err := open("managed"); err != nil || !strings.Contains(log, "CONFIG") || !strings.Contains(log, "appendfsync") {
		t.Errorf("CONFIG is forbidden: %v, log: %s", err, log)
	}
	if log, err := open("blind"); err != nil || !strings.Contains(log, "setting=maxmemory-policy") || !strings.Contains(log, "setting=appendonly") {
		t.Errorf("CONFIG and INFO are forbidden: %v, log: %s", err, log)
	}
	if err := server.ConfigSet(ctx, "maxmemory-policy", "allkeys-lru").Err(); err != nil {
		t.Fatal(err)
	}
	_, err := open("managed")
	wantError(t, err, "maxmemory-policy is allkeys-lru")
}

func TestAReplicaIsRefusedAndOneThatBecomesOneIsAnError(t *testing.T) {
	master := own(t)
	slave := replica(t, master)
	_, err := redisledger.Open(t.Context(), slave, nil)
	wantError(t, err, "replica of 127.0.0.1:")

	store, err := redisledger.Open(t.Context(), master, nil)
	if err != nil {
		t.Fatal(err)
	}
	// The master is demoted under the store's feet.
	if err := slave.ReplicaOf(t.Context(), "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	host, port, _ := strings.Cut(slave.Options().Addr, ":")
	if err := master.ReplicaOf(t.Context(), host, port).Err(); err != nil {
		t.Fatal(err)
	}
	_, err = store.Apply(t.Context(), "c", ledger.Write{NewTag: "1", Head: ledger.NewRow("", fence.Index{}, nil)})
	wantError(t, err, "redisledger: apply: ", "READONLY")
}

func TestWrongSettingsAreNamed(t *testing.T) {
	client := mini(t)
	for _, c := range []struct {
		config redisledger.Config
		says   string
	}{
		{redisledger.Config{Prefix: "a{b"}, "Config.Prefix"},
		{redisledger.Config{Wait: &redisledger.Wait{}}, "set Config.Wait.Replicas"},
		{redisledger.Config{Wait: &redisledger.Wait{Replicas: -1}}, "Config.Wait.Replicas"},
		{redisledger.Config{Wait: &redisledger.Wait{Replicas: 1, Timeout: 1}}, "Config.Wait.Timeout"},
		{redisledger.Config{Wait: &redisledger.Wait{Replicas: 1, Timeout: time.Minute}}, "ReadTimeout"},
		{redisledger.Config{Wait: &redisledger.Wait{Local: 1}}, "Config.Wait.Local"},
		{redisledger.Config{WaitAOF: &redisledger.Wait{Local: 2}}, "Config.WaitAOF.Local"},
	} {
		c.config.Logger = slog.New(slog.DiscardHandler)
		_, err := redisledger.Open(t.Context(), client, &c.config)
		wantError(t, err, c.says)
	}
	_, err := redisledger.Open(t.Context(), nil, nil)
	wantError(t, err, "client is nil")
	var never *redis.Client
	_, err = redisledger.Open(t.Context(), never, nil)
	wantError(t, err, "client is nil")
	ring := closed(t, redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": client.Options().Addr}}))
	_, err = redisledger.Open(t.Context(), ring, nil)
	wantError(t, err, "redis.Ring")
}

func TestAddressesAreUnderstoodAndPasswordsNotShown(t *testing.T) {
	ctx := t.Context()
	for _, address := range []string{"localhost:6379", "http://u:secret@h", "redis://u:secret@h:port", "redis://u:secret@%zz", "redis://u:secret@h:1,h:2/5", "redis://u:secret@h:1/notanumber"} {
		_, err := redisledger.Connect(ctx, address, nil)
		wantError(t, err, "redisledger: connect: ")
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
	client := mini(t)
	store, err := redisledger.Connect(ctx, "redis://"+client.Options().Addr+"/0", &redisledger.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Load(ctx, "c", ledger.Query{}); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := store.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if _, err := store.Load(ctx, "c", ledger.Query{}); err == nil {
		t.Error("a store that was closed answers")
	}
	// What the caller made stays open.
	if err := fresh(t, client).Close(); err != nil || client.Ping(ctx).Err() != nil {
		t.Error("Close closed the caller's client")
	}
}

func TestSeveralHostsAreACluster(t *testing.T) {
	nodes := private.ServiceRedisCluster.Need(t)
	config := redisledger.ConfigOf(fresh(t, cluster(t)))
	for _, path := range []string{"", "/", "/0", "?dial_timeout=3s", "/?dial_timeout=3s"} {
		store, err := redisledger.Connect(t.Context(), "redis://"+nodes+path, config)
		if err != nil {
			t.Errorf("%q: %v", path, err)
			continue
		}
		if _, ok := redisledger.ClientOf(store).(*redis.ClusterClient); !ok {
			t.Errorf("%q: the client is a %T", path, redisledger.ClientOf(store))
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
	one, _, _ := strings.Cut(nodes, ",")
	_, err := redisledger.Connect(t.Context(), "redis://"+one, config)
	wantError(t, err, "node of a Cluster")
	// What is asked of one server is asked of every master.
	_, err = redisledger.Open(t.Context(), cluster(t), &redisledger.Config{Prefix: config.Prefix, WaitAOF: &redisledger.Wait{Local: 1}})
	if err != nil {
		wantError(t, err, "node 127.0.0.1:", "7.2")
	}
}

func TestAnotherFormatIsRefused(t *testing.T) {
	client := mini(t)
	if err := client.Set(t.Context(), "fencedrun:format", "2", 0).Err(); err != nil {
		t.Fatal(err)
	}
	_, err := redisledger.Open(t.Context(), client, &redisledger.Config{Logger: slog.New(slog.DiscardHandler)})
	wantError(t, err, "fencedrun:format", `"2"`)
}

func TestOldServersAreRefused(t *testing.T) {
	for version, config := range map[string]redisledger.Config{
		"6.0.16": {}, "5.0.14": {}, "7.0.15": {WaitAOF: &redisledger.Wait{Local: 1}},
	} {
		client := mini(t)
		client.AddHook(info(fmt.Sprintf("# Server\r\nredis_version:%s\r\nrole:master\r\naof_enabled:1\r\nmaxmemory_policy:noeviction\r\n", version)))
		config.Logger = slog.New(slog.DiscardHandler)
		_, err := redisledger.Open(t.Context(), client, &config)
		wantError(t, err, "the server is Redis "+version, "or newer")
	}
}

// info answers INFO with what it is.
type info string

func (i info) DialHook(next redis.DialHook) redis.DialHook { return next }
func (i info) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if said, ok := cmd.(*redis.StringCmd); ok && cmd.Name() == "info" {
			said.SetVal(string(i))
			return nil
		}
		return next(ctx, cmd)
	}
}

func (i info) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A server without memory refuses a claim, and nothing of it is written.
func TestAFullServerRefusesAll(t *testing.T) {
	client := own(t)
	store, err := redisledger.Open(t.Context(), client, nil)
	if err != nil {
		t.Fatal(err)
	}
	l := engine(store)
	h, _, _, err := l.Begin(t.Context(), "c", job("j"))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if err := client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	q := effect("c", "refund", "1")
	_, _, err = h.Claim(t.Context(), q)
	wantError(t, err, "OOM")
	if err := client.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	if found, err := store.Scan(t.Context(), ledger.Scan{Kind: ledger.ScanOpen, Open: fence.UnresolvedEffect, Before: 1 << 50, Limit: 9}); err != nil || len(found) != 0 {
		t.Errorf("a refused claim is listed: %v, %v", found, err)
	}
	if v, _, err := h.Claim(t.Context(), q); err != nil || v.Call == nil || len(v.Effect.Calls) != 1 {
		t.Errorf("the claim after that: %+v, %v", v, err)
	}
}
