//go:build unix

package private

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis is a server that appends every change to its file, and evicts nothing.
type Redis struct {
	*Server

	Addr string // host:port
}

// StartRedis starts a server with each setting ("name value") on top. dir must not exist.
func StartRedis(ctx context.Context, dir string, settings ...string) (*Redis, error) {
	path, err := prepare(ServiceRedis, dir)
	if err != nil {
		return nil, fmt.Errorf("services: start redis: %w", err)
	}
	r := &Redis{}
	r.Server, err = onFreePort(ctx, func(port int) (*Server, error) {
		r.Addr = address(port)
		lines := append([]string{
			"bind 127.0.0.1", fmt.Sprint("port ", port), "daemonize no", `save ""`,
			"appendonly yes", "maxmemory-policy noeviction",
		}, settings...)
		conf := filepath.Join(dir, "redis.conf")
		if err := os.WriteFile(conf, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			return nil, err
		}
		// Killed, it loses what it has not written yet, at most a second's changes on a
		// machine that crashes with it.
		return &Server{Dir: dir, path: path, args: []string{conf}, quit: syscall.SIGKILL, ready: pongs(r.Addr)}, nil
	})
	if err != nil {
		return nil, fmt.Errorf("services: start redis: %w", err)
	}
	return r, nil
}

func client(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true})
}

// pongs returns a check that the server at addr has loaded its data and answers.
func pongs(addr string) func(context.Context) error {
	return func(ctx context.Context) error {
		// The client would write to the log that nobody listens yet.
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err != nil {
			return err
		}
		_ = conn.Close() // it was only a look
		c := client(addr)
		defer c.Close()
		return c.Ping(ctx).Err()
	}
}

// RedisCluster is three masters without replicas, which share all slots.
type RedisCluster struct {
	Nodes []*Redis
}

// StartRedisCluster starts the nodes and joins them. dir must not exist.
func StartRedisCluster(ctx context.Context, dir string) (*RedisCluster, error) {
	c := &RedisCluster{}
	err := c.start(ctx, dir)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("services: start redis-cluster: %w", err), c.Crash())
	}
	return c, nil
}

func (c *RedisCluster) start(ctx context.Context, dir string) error {
	if err := os.Mkdir(dir, 0o711); err != nil {
		return err
	}
	const nodes, slots = 3, 16384
	for i := range nodes {
		node, err := StartRedis(ctx, filepath.Join(dir, fmt.Sprint("node-", i)), "cluster-enabled yes")
		if err != nil {
			return err
		}
		c.Nodes = append(c.Nodes, node)
	}
	for i, node := range c.Nodes {
		err := func() error {
			cl := client(node.Addr)
			defer cl.Close()
			if err := cl.ClusterAddSlotsRange(ctx, i*slots/nodes, (i+1)*slots/nodes-1).Err(); err != nil {
				return err
			}
			// Masters that start with the same epoch would have to sort it out first.
			if err := cl.Do(ctx, "cluster", "set-config-epoch", i+1).Err(); err != nil {
				return err
			}
			host, port, _ := strings.Cut(c.Nodes[0].Addr, ":")
			return cl.ClusterMeet(ctx, host, port).Err()
		}()
		if err != nil {
			return fmt.Errorf("join %s: %w", node.Addr, err)
		}
	}
	return c.Await(ctx)
}

// Await returns when every node says that the cluster can be used. That takes 2 seconds from a
// node's start: Redis gives the others that long to contradict a master.
func (c *RedisCluster) Await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, node := range c.Nodes {
		for {
			err := joined(ctx, node.Addr, len(c.Nodes))
			if err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("cluster node %s: %w: %w", node.Addr, ctx.Err(), err)
			case <-time.After(pollPeriod):
			}
		}
	}
	return nil
}

func joined(ctx context.Context, addr string, nodes int) error {
	c := client(addr)
	defer c.Close()
	info, err := c.ClusterInfo(ctx).Result()
	if err != nil {
		return err
	}
	for _, line := range []string{"cluster_state:ok", fmt.Sprint("cluster_known_nodes:", nodes), fmt.Sprint("cluster_size:", nodes)} {
		if !strings.Contains(info, line+"\r\n") {
			return fmt.Errorf("not %s", line)
		}
	}
	return nil
}

// Addrs are the nodes' addresses.
func (c *RedisCluster) Addrs() []string {
	var addrs []string
	for _, node := range c.Nodes {
		addrs = append(addrs, node.Addr)
	}
	return addrs
}

// Crash ends all nodes at once.
func (c *RedisCluster) Crash() error {
	var errs []error
	for _, node := range c.Nodes {
		errs = append(errs, node.Crash())
	}
	return errors.Join(errs...)
}
