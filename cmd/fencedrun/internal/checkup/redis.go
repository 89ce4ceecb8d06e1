package checkup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// node is what one server says of itself.
type node struct {
	addr    string
	info    map[string]string // of INFO
	infoErr error
	config  map[string]string // of CONFIG GET, what it says
	confErr error
	sent    time.Time // around the question for its clock
	heard   time.Time
	said    time.Time
	timeErr error
	runs    error // of a script that does nothing
}

func checkRedis(ctx context.Context, l *list, t *Target) {
	if t.Prefix == "" {
		t.Prefix = "fencedrun"
	}
	switch c := t.Redis.(type) {
	case *redis.Ring:
		l.problem("client", "the client is a redis.Ring", "A Ring looks for claims on another server when theirs is down, and so forgets them.", "Use one server, Sentinel or Cluster.")
		return
	case *redis.ClusterClient:
		checkCluster(ctx, l, t, c)
	default:
		reach, cancel := context.WithTimeout(ctx, bound)
		defer cancel()
		if err := c.Ping(reach).Err(); err != nil && !answered(err) {
			l.problem("reach", "the server cannot be reached: "+err.Error(), "", "Look at its URL, its password and the network.")
			return
		}
		n := look(ctx, t, "", c)
		l.server(&n, t)
		if n.info["cluster_enabled"] == "1" {
			l.problem("cluster", "the server is a node of a Cluster", "Asked as a single server it refuses most conversations.", "Give several of its hosts: redis://host,host,host.")
		}
	}
	format(ctx, l, t)
}

// answered reports whether err is the server's own answer.
func answered(err error) bool {
	var said redis.Error
	return errors.As(err, &said)
}

// The settings that are asked for.
var settings = []string{"maxmemory-policy", "appendonly", "appendfsync", "min-replicas-to-write"}

// look asks one server, in commands that change nothing.
func look(ctx context.Context, t *Target, addr string, c redis.UniversalClient) node {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	n := node{addr: addr, info: map[string]string{}, config: map[string]string{}}
	said, err := c.Info(ctx).Result()
	n.info, n.infoErr = parse(said), err
	for _, name := range settings {
		got, err := c.ConfigGet(ctx, name).Result()
		if err != nil {
			n.confErr = err
			break
		}
		if value, ok := got[name]; ok {
			n.config[name] = value
		}
	}
	n.sent = t.Now()
	n.said, n.timeErr = c.Time(ctx).Result()
	n.heard = t.Now()
	if n.info["role"] != "slave" {
		n.runs = c.Eval(ctx, "return 1", []string{t.Prefix + ":{0}:i"}).Err()
	}
	return n
}

// parse reads what INFO and CLUSTER INFO say.
func parse(said string) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(said) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			values[name] = value
		}
	}
	return values
}

// setting is what CONFIG says, else what INFO does, which is allowed nearly everywhere; "" if
// neither.
func (n *node) setting(name string) string {
	if value := n.config[name]; value != "" {
		return value
	}
	switch name {
	case "maxmemory-policy":
		return n.info["maxmemory_policy"]
	case "appendonly":
		return map[string]string{"0": "no", "1": "yes"}[n.info["aof_enabled"]]
	}
	return ""
}

func (n *node) number(name string) int64 {
	v, err := strconv.ParseInt(n.info[name], 10, 64)
	if err != nil {
		return 0
	}
	return v
}

// server judges a server that holds conversations.
func (l *list) server(n *node, t *Target) {
	if n.infoErr != nil {
		l.unseen("info", "the server's state", n.infoErr, "Allow INFO, or look at your provider's console.")
	}
	l.version(n)
	if n.info["role"] == "slave" {
		l.problem("role", fmt.Sprintf("the server is a replica of %s:%s", n.info["master_host"], n.info["master_port"]), "The ledger must be written; a replica refuses.", "Connect to the master, or through Sentinel.")
		return
	}
	l.memory(n)
	l.persistence(n)
	l.replicas(n, t.Waits)
	if n.timeErr != nil {
		l.unseen("clock", "the server's clock", n.timeErr, "Allow TIME: the ledger needs it.")
	} else {
		l.skew("clock", "the server", n.sent, n.heard, n.said)
	}
	if n.runs != nil {
		l.problem("scripts", "the server runs no script for this user: "+n.runs.Error(), "Every change of the ledger is one.", "Allow EVAL and EVALSHA on the keys "+t.Prefix+":*.")
	} else {
		l.ok("scripts", "scripts may be run")
	}
}

func (l *list) version(n *node) {
	version := n.info["redis_version"]
	name := "Redis " + version
	if v := n.info["valkey_version"]; v != "" {
		name = "Valkey " + v
	}
	switch {
	case version == "":
		if n.infoErr == nil {
			l.hidden("version", "could not look at the server's version", "INFO does not say it.", "")
		}
	case before(version, 6, 2):
		l.problem("version", "the server is "+name, "The library needs Redis 6.2 or newer.", "Upgrade the server.")
	default:
		l.ok("version", "the server is "+name)
	}
}

func before(version string, major, minor int) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	a, errA := strconv.Atoi(parts[0])
	b, errB := strconv.Atoi(parts[1])
	return errA == nil && errB == nil && (a < major || a == major && b < minor)
}

func (l *list) memory(n *node) {
	policy, most, used := n.setting("maxmemory-policy"), n.number("maxmemory"), n.number("used_memory")
	switch policy {
	case "":
		l.unseen("eviction", "maxmemory-policy", orNothing(n.confErr), "Look at it in your provider's console: it must be noeviction.")
	case "noeviction":
		l.ok("eviction", "maxmemory-policy is noeviction")
	default:
		what := "maxmemory-policy is " + policy
		if most == 0 && n.infoErr == nil {
			what += " (and maxmemory is 0, so that nothing is evicted yet)"
		}
		l.problem("eviction", what, "With its memory full the server deletes claims, and their effects are done again.", "Set it to noeviction: CONFIG SET maxmemory-policy noeviction, and in redis.conf.")
	}
	if most > 0 && used*10 > most*9 {
		l.warn("memory", fmt.Sprintf("%d of %d MB of maxmemory are used", used>>20, most>>20), "A server that is full refuses claims, and effects are not made.", "Raise maxmemory, or purge: fencedrun purge.")
	}
}

func (l *list) persistence(n *node) {
	const conf = "Set it in redis.conf and with CONFIG SET appendonly yes."
	switch n.setting("appendonly") {
	case "":
		l.unseen("appendonly", "appendonly", orNothing(n.confErr), "Look at it in your provider's console: it must be yes.")
		return
	case "no":
		l.problem("appendonly", "appendonly is no", "A restart of the server forgets what was claimed since its last snapshot, and it is done again.", conf)
		return
	}
	l.ok("appendonly", "appendonly is yes")
	switch n.setting("appendfsync") {
	case "":
		l.unseen("appendfsync", "appendfsync", orNothing(n.confErr), "Look at it in your provider's console: it should be everysec or always.")
	case "no":
		l.warn("appendfsync", "appendfsync is no", "A power cut may lose half a minute of claims, and their effects are done again.", "Set it to everysec, or to always.")
	case "everysec":
		l.ok("appendfsync", "appendfsync is everysec: a power cut may lose up to 2 seconds of claims (always, or redisledger.Config.WaitAOF, loses none)")
	default:
		l.ok("appendfsync", "appendfsync is "+n.setting("appendfsync"))
	}
	for _, last := range []string{"write", "bgrewrite"} {
		if status := n.info["aof_last_"+last+"_status"]; status != "" && status != "ok" {
			l.problem("aof_status", "the last "+last+" of the append-only file failed", "What is claimed now may be gone after a restart. Is the disk full?", "Look at the server's log.")
		}
	}
}

// replicas judges whether a failover loses what was acknowledged.
func (l *list) replicas(n *node, waits bool) {
	connected := n.number("connected_slaves")
	if n.infoErr != nil {
		return // said already
	}
	for i := range connected {
		fields := map[string]string{}
		for part := range strings.SplitSeq(n.info[fmt.Sprintf("slave%d", i)], ",") {
			name, value, _ := strings.Cut(part, "=")
			fields[name] = value
		}
		lag, err := strconv.Atoi(fields["lag"])
		if state := fields["state"]; state != "" && state != "online" || err == nil && lag > 10 {
			l.warn("replica_lag", fmt.Sprintf("replica %s:%s is behind: state %s, last heard of %s seconds ago", fields["ip"], fields["port"], fields["state"], fields["lag"]),
				"Promoted now, it would have lost that much.", "Look at the network between the two, and at the replica's log.")
		}
	}
	switch {
	case connected == 0:
		l.ok("replicas", "there are no replicas")
	case waits:
		l.ok("replicas", "the service waits for replication; connected: "+plural(connected, "replica"))
	default:
		why := "Redis answers before a replica has what it wrote: a failover loses the last moments, claims too, and their effects are done again."
		if n.config["min-replicas-to-write"] == "0" {
			why += " And min-replicas-to-write is 0: a master that is cut off goes on accepting claims that will be lost."
		}
		l.warn("replicas", "replication is asynchronous; connected: "+plural(connected, "replica"), why,
			"Set redisledger.Config.Wait, and min-replicas-to-write to 1. If the service waits already, this is as good as Redis gets.")
	}
}

// checkCluster asks every node: a replica, too, may be promoted with its settings.
func checkCluster(ctx context.Context, l *list, t *Target, c *redis.ClusterClient) {
	reach, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	said, err := c.ClusterInfo(reach).Result()
	if err != nil {
		l.problem("reach", "the Cluster cannot be reached: "+err.Error(), "", "Look at the hosts, the password and the network.")
		return
	}
	l.clusterState(parse(said))
	var mu sync.Mutex
	var nodes []node
	visit := func(ctx context.Context, one *redis.Client) error {
		n := look(ctx, t, one.Options().Addr, one)
		mu.Lock()
		defer mu.Unlock()
		nodes = append(nodes, n)
		return nil
	}
	if err := errors.Join(c.ForEachMaster(ctx, visit), c.ForEachSlave(ctx, visit)); err != nil {
		l.unseen("nodes", "some nodes", err, "")
	}
	slices.SortFunc(nodes, func(a, b node) int { return strings.Compare(a.addr, b.addr) })
	l.nodes(nodes, t)
}

func (l *list) clusterState(is map[string]string) {
	switch {
	case is["cluster_state"] != "ok":
		l.problem("cluster", "the Cluster's state is "+orElse(is["cluster_state"], "unknown"), "Some conversations, or all, cannot be written.", "CLUSTER NODES says which node is missing.")
	case is["cluster_slots_assigned"] != "16384" || is["cluster_slots_fail"] != "0" || is["cluster_slots_pfail"] != "0":
		l.problem("cluster", fmt.Sprintf("of the Cluster's 16384 slots %s are assigned, %s have failed, and %s may have", is["cluster_slots_assigned"], is["cluster_slots_fail"], is["cluster_slots_pfail"]),
			"The conversations in them cannot be written.", "CLUSTER NODES says which node is missing.")
	default:
		l.ok("cluster", "the Cluster's state is ok, and all slots are served")
	}
}

// nodes judges each node of a Cluster, and their clocks together.
func (l *list) nodes(nodes []node, t *Target) {
	var first, last time.Duration
	known := false
	for i := range nodes {
		n := &nodes[i]
		l.node = "node " + n.addr
		if n.info["role"] == "slave" {
			l.version(n)
			l.memory(n)
			l.persistence(n)
		} else {
			l.server(n, t)
			if n.infoErr == nil && n.number("connected_slaves") == 0 {
				l.warn("cluster_replicas", "the master has no replica", "While it is down its conversations cannot be written, and effects in them are not made.", "Give it one, or accept that.")
			}
		}
		if n.timeErr == nil {
			// The middle of the question is the best guess.
			off := n.said.Sub(n.sent.Add(n.heard.Sub(n.sent) / 2))
			if !known || off < first {
				first = off
			}
			if !known || off > last {
				last = off
			}
			known = true
		}
	}
	l.node = ""
	if known && len(nodes) > 1 {
		l.between(last - first)
	}
}

// between judges how far the clocks of nodes are apart: leases and deadlines are judged by the
// clock of the one that answers.
func (l *list) between(apart time.Duration) {
	const do = "Synchronize the nodes with NTP (chrony, systemd-timesyncd)."
	switch {
	case apart >= 30*time.Second:
		l.problem("cluster_clocks", fmt.Sprintf("the clocks of the nodes are %v apart", apart.Round(time.Second)), "After a failover leases lapse, or deadlines pass, by so much too early or too late.", do)
	case apart >= 2*time.Second:
		l.warn("cluster_clocks", fmt.Sprintf("the clocks of the nodes are %v apart", apart.Round(time.Second)), "After a failover leases lapse, or deadlines pass, by so much too early or too late.", do)
	default:
		l.ok("cluster_clocks", "the clocks of the nodes agree")
	}
}

// format looks whether there is a ledger under the prefix.
func format(ctx context.Context, l *list, t *Target) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	key := t.Prefix + ":format"
	is, err := t.Redis.Get(ctx, key).Result()
	switch {
	case errors.Is(err, redis.Nil):
		l.warn("format", "there is no ledger under the prefix "+t.Prefix+" yet", "No service has started with it: is it the right server, database and prefix?", "Look at redisledger.Config.Prefix of the service.")
	case err != nil:
		l.unseen("format", key, err, "Allow GET on the keys "+t.Prefix+":*: the ledger needs it.")
	case is != "1":
		l.problem("format", fmt.Sprintf("%s is %.20q, and this library reads 1", key, is), "Another version of the library, or something else, uses this prefix.", "Use the version that wrote it, or another prefix.")
	default:
		l.ok("format", "there is a ledger under the prefix "+t.Prefix)
	}
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
