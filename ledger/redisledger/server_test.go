package redisledger_test

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/fencedrun/fencedrun/internal/services/private"
)

// own starts a server that is this test's alone, with such settings as a shared one cannot have.
func own(t *testing.T, settings ...string) *redis.Client {
	t.Helper()
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		private.Unavailable(t, "redis-server is not installed")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	args := append([]string{"--port", port, "--bind", "127.0.0.1", "--dir", t.TempDir(), "--save", "", "--appendonly", "yes", "--shutdown-timeout", "0"}, settings...)
	// Asked to stop, it stops the child that rewrites its file first; killed, it leaves one that
	// goes on writing into a folder that is being removed.
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait()
	})
	client := closed(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port}))
	until(t, "the server answers", func(ctx context.Context) bool { return client.Ping(ctx).Err() == nil })
	return client
}

// until waits until something is so.
func until(t *testing.T, what string, so func(ctx context.Context) bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if so(t.Context()) {
			return
		}
	}
	t.Fatalf("not within 20 seconds: %s", what)
}

// replica starts a private server that replicates another.
func replica(t *testing.T, of *redis.Client, settings ...string) *redis.Client {
	t.Helper()
	host, port, _ := net.SplitHostPort(of.Options().Addr)
	r := own(t, append([]string{"--replicaof", fmt.Sprintf("%s %s", host, port)}, settings...)...)
	synced(t, r)
	return r
}

func synced(t *testing.T, r *redis.Client) {
	t.Helper()
	until(t, "the replica is in sync", func(ctx context.Context) bool {
		return r.InfoMap(ctx, "replication").Item("Replication", "master_link_status") == "up"
	})
}
