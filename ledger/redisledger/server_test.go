package redisledger_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// private starts a server that is this test's alone, with such settings as a shared one cannot have.
func private(t *testing.T, settings ...string) *redis.Client {
	t.Helper()
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("FENCEDRUN_TEST_SERVICES") == "required" {
			t.Fatal("redis-server is not installed, and FENCEDRUN_TEST_SERVICES=required")
		}
		t.Skip("redis-server is not installed")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	args := append([]string{"--port", port, "--bind", "127.0.0.1", "--dir", t.TempDir(), "--save", "", "--appendonly", "yes"}, settings...)
	cmd := exec.Command(binary, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
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
	r := private(t, append([]string{"--replicaof", fmt.Sprintf("%s %s", host, port)}, settings...)...)
	synced(t, r)
	return r
}

func synced(t *testing.T, r *redis.Client) {
	t.Helper()
	until(t, "the replica is in sync", func(ctx context.Context) bool {
		return r.InfoMap(ctx, "replication").Item("Replication", "master_link_status") == "up"
	})
}
