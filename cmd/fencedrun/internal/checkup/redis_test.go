//go:build unix

package checkup

import (
	"context"
	"crypto/rand"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/fencedrun/fencedrun/internal/services/private"
	"github.com/fencedrun/fencedrun/ledger/redisledger"
)

func clientOf(t *testing.T, o *redis.Options) *redis.Client {
	t.Helper()
	o.MaxRetries = -1
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}

func redisFindings(t *testing.T, c redis.UniversalClient, change ...func(*Target)) []Finding {
	t.Helper()
	target := Target{Kind: Redis, Redis: c, Records: &fake{}}
	for _, f := range change {
		f(&target)
	}
	r := Check(t.Context(), target)
	complete(t, r.Findings)
	return r.Findings
}

func TestRedisAsItShouldBe(t *testing.T) {
	o, err := redis.ParseURL(private.ServiceRedis.Need(t))
	if err != nil {
		t.Fatal(err)
	}
	c := clientOf(t, o)
	prefix := "doctor-" + rand.Text()
	with := func(t *Target) { t.Prefix = prefix }
	wants(t, redisFindings(t, c, with), "format", "warning: there is no ledger under the prefix "+prefix)
	if _, err := redisledger.Open(t.Context(), c, &redisledger.Config{Prefix: prefix}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Del(context.Background(), prefix+":format") })
	findings := redisFindings(t, c, with)
	for _, f := range findings {
		if f.Level != OK {
			t.Errorf("%+v", f)
		}
	}
	for _, check := range []string{"version", "eviction", "appendonly", "appendfsync", "replicas", "clock", "scripts", "format"} {
		wants(t, findings, check, "ok: ")
	}
	if keys := c.Keys(t.Context(), prefix+"*").Val(); len(keys) != 1 {
		t.Errorf("the checkup left %q", keys)
	}
	if err := c.Set(t.Context(), prefix+":format", "99", 0).Err(); err != nil {
		t.Fatal(err)
	}
	wants(t, redisFindings(t, c, with), "format", `problem: `+prefix+`:format is "99", and this library reads 1`)
}

// own starts a server with settings on top of good ones.
func own(t *testing.T, settings ...string) *redis.Client {
	t.Helper()
	private.ServiceRedis.Need(t)
	if err := private.Missing([]private.Service{private.ServiceRedis}); err != nil {
		private.Unavailable(t, err.Error())
	}
	server, err := private.StartRedis(ctxForServer(t), filepath.Join(folder(t), "redis"), settings...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Crash() })
	return clientOf(t, &redis.Options{Addr: server.Addr})
}

func TestRedisSettingsThatHurtAreFound(t *testing.T) {
	c := own(t)
	for _, s := range []struct{ setting, bad, good, check, want string }{
		{"maxmemory-policy", "allkeys-lru", "noeviction", "eviction", "problem: maxmemory-policy is allkeys-lru (and maxmemory is 0, so that nothing is evicted yet)"},
		{"appendonly", "no", "yes", "appendonly", "problem: appendonly is no"},
		{"appendfsync", "no", "everysec", "appendfsync", "warning: appendfsync is no"},
		{"appendfsync", "always", "everysec", "appendfsync", "ok: appendfsync is always"},
		{"maxmemory", "1mb", "0", "memory", "of 1 MB of maxmemory are used"},
	} {
		wants(t, redisFindings(t, c), s.check, map[bool]string{true: "ok: "}[s.check != "memory"])
		if err := c.ConfigSet(t.Context(), s.setting, s.bad).Err(); err != nil {
			t.Fatal(err)
		}
		wants(t, redisFindings(t, c), s.check, s.want)
		if err := c.ConfigSet(t.Context(), s.setting, s.good).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// Managed servers forbid CONFIG, and some more.
func TestWhatRedisForbidsIsTold(t *testing.T) {
	c := own(t)
	as := func(user string, rules ...string) []Finding {
		t.Helper()
		args := []any{"acl", "setuser", user, "on", "nopass", "~*", "+@all"}
		for _, r := range rules {
			args = append(args, r)
		}
		if err := c.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
		return redisFindings(t, clientOf(t, &redis.Options{Addr: c.Options().Addr, Username: user, Password: "x"}))
	}
	managed := as("managed", "-config")
	wants(t, managed, "eviction", "ok: ") // INFO knows
	wants(t, managed, "appendonly", "ok: ")
	wants(t, managed, "appendfsync", "warning: could not look at appendfsync")
	blind := as("blind", "-config", "-info", "-time", "-ping")
	for _, check := range []string{"info", "eviction", "appendonly", "clock"} {
		wants(t, blind, check, "warning: could not look at")
	}
	wants(t, blind, "reach")
	wants(t, as("mute", "-eval"), "scripts", "problem: the server runs no script")
	wants(t, as("deaf", "-get"), "format", "warning: could not look at fencedrun:format")
}

func TestAsynchronousReplicasAreFound(t *testing.T) {
	master := own(t)
	replica := own(t, "replicaof "+hostAndPort(master))
	deadline := time.Now().Add(20 * time.Second)
	for replica.InfoMap(t.Context(), "replication").Item("Replication", "master_link_status") != "up" {
		if time.Now().After(deadline) {
			t.Fatal("the replica is not in sync")
		}
		time.Sleep(10 * time.Millisecond)
	}
	findings := redisFindings(t, master)
	wants(t, findings, "replicas", "warning: replication is asynchronous; connected: 1 replica")
	for _, f := range findings {
		if f.Check == "replicas" && f.Why == "" {
			t.Error(f)
		}
	}
	wants(t, redisFindings(t, master, func(t *Target) { t.Waits = true }), "replicas", "ok: the service waits for replication; connected: 1 replica")
	wants(t, redisFindings(t, replica), "role", "problem: the server is a replica of 127.0.0.1:")
}

func hostAndPort(c *redis.Client) string {
	addr := []byte(c.Options().Addr)
	for i, b := range addr {
		if b == ':' {
			addr[i] = ' '
		}
	}
	return string(addr)
}

func TestAClusterIsLookedAtNodeByNode(t *testing.T) {
	private.ServiceRedis.Need(t)
	if err := private.Missing([]private.Service{private.ServiceRedisCluster}); err != nil {
		private.Unavailable(t, err.Error())
	}
	cluster, err := private.StartRedisCluster(ctxForServer(t), filepath.Join(folder(t), "cluster"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Crash() })
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	defer c.Close()
	findings := redisFindings(t, c)
	wants(t, findings, "cluster", "ok: the Cluster's state is ok")
	wants(t, findings, "cluster_clocks", "ok: ")
	wants(t, findings, "scripts", "ok: ")
	for _, addr := range cluster.Addrs() {
		wants(t, findings, "cluster_replicas", "warning: node "+addr+": the master has no replica")
	}
	one := clientOf(t, &redis.Options{Addr: cluster.Addrs()[1]})
	if err := one.ConfigSet(t.Context(), "maxmemory-policy", "volatile-ttl").Err(); err != nil {
		t.Fatal(err)
	}
	wants(t, redisFindings(t, c), "eviction", "problem: node "+cluster.Addrs()[1]+": maxmemory-policy is volatile-ttl", "ok: node "+cluster.Addrs()[0])
	wants(t, redisFindings(t, one), "cluster", "problem: the server is a node of a Cluster")
}

func TestARedisThatIsAwayIsAProblem(t *testing.T) {
	away := clientOf(t, &redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})
	wants(t, redisFindings(t, away), "reach", "problem: the server cannot be reached")
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, MaxRedirects: 1})
	defer cluster.Close()
	wants(t, redisFindings(t, cluster), "reach", "problem: the Cluster cannot be reached")
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	wants(t, redisFindings(t, ring), "client", "problem: the client is a redis.Ring")
}

// A server in this process knows neither CONFIG nor most of INFO.
func TestAServerThatKnowsLittleIsNoFailure(t *testing.T) {
	server := miniredis.RunT(t)
	server.SetTime(time.Now().Add(-time.Hour))
	findings := redisFindings(t, clientOf(t, &redis.Options{Addr: server.Addr()}))
	wants(t, findings, "eviction", "warning: could not look at maxmemory-policy")
	wants(t, findings, "appendonly", "warning: could not look at appendonly")
	wants(t, findings, "clock", "problem: the clock of the server and the one of this machine differ by 1h0m0s")
}

func TestWhatAServerSaysIsJudged(t *testing.T) {
	now := time.Now()
	good := func() *node {
		return &node{
			sent: now, heard: now, said: now,
			info:   parse("# Server\r\nredis_version:7.0.15\r\nrole:master\r\nmaxmemory:0\r\naof_last_write_status:ok\r\n"),
			config: map[string]string{"maxmemory-policy": "noeviction", "appendonly": "yes", "appendfsync": "everysec", "min-replicas-to-write": "0"},
		}
	}
	for _, c := range []struct {
		change      func(n *node)
		check, want string
	}{
		{func(n *node) { n.info["redis_version"] = "6.0.16" }, "version", "problem: the server is Redis 6.0.16"},
		{func(n *node) { n.info["redis_version"] = "6.2.0" }, "version", "ok: the server is Redis 6.2.0"},
		{func(n *node) { n.info["valkey_version"] = "8.0.1" }, "version", "ok: the server is Valkey 8.0.1"},
		{func(n *node) { n.config = nil; n.info["maxmemory_policy"] = "allkeys-lfu"; n.info["maxmemory"] = "9" }, "eviction", "problem: maxmemory-policy is allkeys-lfu\n"},
		{func(n *node) { n.config = nil; n.info["aof_enabled"] = "0" }, "appendonly", "problem: appendonly is no"},
		{func(n *node) { n.info["aof_last_write_status"] = "err" }, "aof_status", "problem: the last write of the append-only file failed"},
		{func(n *node) { n.info["aof_last_bgrewrite_status"] = "err" }, "aof_status", "problem: the last bgrewrite of the append-only file failed"},
		{func(n *node) { n.info["maxmemory"] = "100000000"; n.info["used_memory"] = "91000000" }, "memory", "warning: 86 of 95 MB"},
		{func(n *node) { n.info["maxmemory"] = "100000000"; n.info["used_memory"] = "80000000" }, "memory", ""},
		{func(n *node) {
			n.info["connected_slaves"], n.info["slave0"] = "1", "ip=10.0.0.9,port=6379,state=online,offset=1,lag=60"
		}, "replica_lag", "warning: replica 10.0.0.9:6379 is behind"},
		{func(n *node) {
			n.info["connected_slaves"], n.info["slave0"] = "1", "ip=10.0.0.9,port=6379,state=wait_bgsave,offset=0,lag=0"
		}, "replica_lag", "warning: replica"},
		{func(n *node) {
			n.info["connected_slaves"], n.info["slave0"] = "1", "ip=10.0.0.9,port=6379,state=online,offset=1,lag=0"
		}, "replica_lag", ""},
		{func(n *node) { n.infoErr = errors.New("NOPERM") }, "info", "warning: could not look at the server's state"},
	} {
		l, n := &list{}, good()
		c.change(n)
		l.server(n, &Target{Prefix: "p"})
		if c.want == "" {
			wants(t, l.findings, c.check)
		} else {
			wants(t, l.findings, c.check, c.want)
		}
		complete(t, l.findings)
	}
	for want, said := range map[string]string{
		"ok: ":                                  "cluster_state:ok\r\ncluster_slots_assigned:16384\r\ncluster_slots_fail:0\r\ncluster_slots_pfail:0\r\n",
		"problem: the Cluster's state is fail":  "cluster_state:fail\r\n",
		"problem: of the Cluster's 16384 slots": "cluster_state:ok\r\ncluster_slots_assigned:16384\r\ncluster_slots_fail:5461\r\ncluster_slots_pfail:0\r\n",
	} {
		l := &list{}
		l.clusterState(parse(said))
		wants(t, l.findings, "cluster", want)
	}
}

func TestClocksOfNodesAreCompared(t *testing.T) {
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for apart, want := range map[time.Duration]string{
		time.Second:      "ok: the clocks of the nodes agree",
		3 * time.Second:  "warning: the clocks of the nodes are 3s apart",
		40 * time.Second: "problem: the clocks of the nodes are 40s apart",
	} {
		l := &list{}
		// Asked one after the other, each with an answer that took a second.
		nodes := []node{{addr: "a", info: map[string]string{"role": "slave"}}, {addr: "b", info: map[string]string{"role": "slave"}}}
		for i := range nodes {
			sent := at.Add(time.Duration(i) * time.Minute)
			nodes[i].sent, nodes[i].heard, nodes[i].said = sent, sent.Add(time.Second), sent.Add(500*time.Millisecond+time.Duration(i)*apart)
		}
		l.nodes(nodes, &Target{})
		wants(t, l.findings, "cluster_clocks", want)
	}
}
