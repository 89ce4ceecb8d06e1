//go:build unix

package main

import (
	"bufio"
	"context"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencedrun/fencedrun/internal/services/private"
)

// The test binary is the command too, so that it can be killed.
func TestMain(m *testing.M) {
	if os.Getenv("SERVICES_TEST_BE_MAIN") != "" {
		main()
	}
	os.Exit(m.Run())
}

// services prepares the command in an environment that names no servers, with a folder of its
// own for temporary files.
func services(t *testing.T, args ...string) (cmd *exec.Cmd, tmp string) {
	t.Helper()
	if err := private.Missing(private.Services()); err != nil {
		t.Skip(err) // make test installs them, unless it is given servers elsewhere
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tmp = t.TempDir()
	// The servers' account must pass through the folder above it too, which is the test's alone.
	for _, dir := range []string{tmp, filepath.Dir(tmp)} {
		if err := os.Chmod(dir, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	cmd = exec.Command(self, args...)
	cmd.Stderr = os.Stderr
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "FENCEDRUN_TEST_") {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	cmd.Env = append(cmd.Env, "SERVICES_TEST_BE_MAIN=1", "TMPDIR="+tmp)
	return cmd, tmp
}

func left(t *testing.T, tmp string) []string {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(tmp, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return left
}

func TestACommandFindsItsServersAndNothingIsLeft(t *testing.T) {
	cmd, tmp := services(t, "--", "env")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"POSTGRES=postgres://", "PGBOUNCER=postgres://", "REDIS=redis://", "REDIS_CLUSTER=127.0.0.1:", "SERVICES=required"} {
		if !strings.Contains(string(out), "\nFENCEDRUN_TEST_"+name) {
			t.Errorf("FENCEDRUN_TEST_%s is not in the command's environment:\n%s", name, out)
		}
	}
	if left := left(t, tmp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestTheExitStatusIsTheCommands(t *testing.T) {
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -9 $$": 128 + 9} {
		cmd, tmp := services(t, "-only", "redis", "--", "sh", "-c", script)
		if err := cmd.Run(); cmd.ProcessState.ExitCode() != want {
			t.Errorf("%s: exit status %d (%v), want %d", script, cmd.ProcessState.ExitCode(), err, want)
		}
		if left := left(t, tmp); len(left) > 0 {
			t.Errorf("%s: left behind: %v", script, left)
		}
	}
	cmd, _ := services(t, "-only", "redis", "--", "/no/such/command")
	if cmd.Stderr = nil; cmd.Run() == nil || cmd.ProcessState.ExitCode() != 127 {
		t.Errorf("a command that is not there: exit status %d, want 127", cmd.ProcessState.ExitCode())
	}
}

func TestAServerThatTheEnvironmentNamesIsUsedAsItIs(t *testing.T) {
	cmd, _ := services(t, "--", "sh", "-c", "echo $FENCEDRUN_TEST_POSTGRES $FENCEDRUN_TEST_PGBOUNCER $FENCEDRUN_TEST_REDIS $FENCEDRUN_TEST_REDIS_CLUSTER")
	cmd.Env = append(cmd.Env, "FENCEDRUN_TEST_POSTGRES=a", "FENCEDRUN_TEST_PGBOUNCER=b", "FENCEDRUN_TEST_REDIS=c", "FENCEDRUN_TEST_REDIS_CLUSTER=d")
	if out, err := cmd.Output(); err != nil || string(out) != "a b c d\n" {
		t.Errorf("the command saw %q, %v", out, err)
	}
}

// underway starts the command with servers and a shell that says when it is there and goes on
// for ever, and returns the addresses of the servers.
func underway(t *testing.T, only string) (cmd *exec.Cmd, tmp string, servers []string) {
	t.Helper()
	cmd, tmp = services(t, "-only", only, "--", "sh", "-c", "echo $FENCEDRUN_TEST_POSTGRES $FENCEDRUN_TEST_REDIS; exec sleep 1000")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	for text := range strings.FieldsSeq(line) {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		servers = append(servers, u.Host)
	}
	for _, server := range servers {
		conn, err := net.Dial("tcp", server)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	return cmd, tmp, servers
}

// gone waits until nobody listens.
func gone(t *testing.T, servers []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, server := range servers {
		for {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", server)
			if ctx.Err() != nil {
				t.Fatalf("%s still listens", server)
			}
			if err != nil {
				break
			}
			conn.Close()
			time.Sleep(10 * time.Millisecond)
		}
	}
}

func TestASignalEndsTheCommandAndTheServers(t *testing.T) {
	for sig, only := range map[syscall.Signal]string{syscall.SIGINT: "redis", syscall.SIGTERM: "postgres,redis", syscall.SIGHUP: "redis"} {
		t.Run(sig.String(), func(t *testing.T) {
			cmd, tmp, servers := underway(t, only)
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 128+int(sig) {
				t.Errorf("exit status %d (%v), want %d", cmd.ProcessState.ExitCode(), err, 128+int(sig))
			}
			gone(t, servers)
			if left := left(t, tmp); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func TestServersDieWithAKilledParentAndTheNextOneCleansUp(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells a process that its parent is gone")
	}
	cmd, tmp, servers := underway(t, "postgres,redis")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	gone(t, servers)
	if len(left(t, tmp)) == 0 {
		t.Fatal("a killed process left nothing behind: there is nothing to clean up")
	}
	next, _ := services(t, "-only", "redis", "--", "true")
	next.Env = append(next.Env, "TMPDIR="+tmp)
	if err := next.Run(); err != nil {
		t.Fatal(err)
	}
	if left := left(t, tmp); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
