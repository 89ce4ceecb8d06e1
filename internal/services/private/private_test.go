//go:build unix

package private

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestTheNewestPostgresThatCanMakeAClusterIsFound(t *testing.T) {
	root := t.TempDir()
	install := func(version string, programs ...string) {
		dir := filepath.Join(root, version, "bin")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, program := range programs {
			if err := os.WriteFile(filepath.Join(dir, program), nil, 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	install("9.6", "postgres", "initdb")
	install("15", "postgres", "initdb")
	install("17", "postgres") // no initdb

	got, ok := ServicePostgres.search([]string{filepath.Join(root, "none"), filepath.Join(root, "*", "bin")})
	if want := filepath.Join(root, "15", "bin", "postgres"); !ok || got != want {
		t.Errorf("found %q, %v, want %q", got, ok, want)
	}
	if got, ok := ServiceRedis.search([]string{filepath.Join(root, "*", "bin")}); ok {
		t.Errorf("found a Redis that is not there: %s", got)
	}
}

func TestWhatIsMissingIsNamedWithItsPackages(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // no apt-get
	missing := &MissingError{Services: []Service{ServicePostgres, ServiceRedis, ServiceRedisCluster}}
	err := Install(t.Context(), missing, os.Stderr)
	for _, want := range []string{"no postgres, no redis-server on", "apt-get", "postgresql, redis-server,", "FENCEDRUN_TEST_REDIS_CLUSTER"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
}

func TestOnlyWhatIsWantedAndNotThereYetIsStarted(t *testing.T) {
	env := func(services ...Service) func(string) (string, bool) {
		return func(name string) (string, bool) {
			there := slices.ContainsFunc(services, func(s Service) bool { return s.Variable() == name })
			return strings.Repeat("x", len(name)*btoi(there)), there
		}
	}
	for _, c := range []struct {
		name string
		only []Service
		env  func(string) (string, bool)
		want []Service
	}{
		{"everything", nil, env(), Services()},
		{"one", []Service{ServiceRedis}, env(), []Service{ServiceRedis}},
		{"a pooler needs a Postgres", []Service{ServicePgBouncer}, env(), []Service{ServicePostgres, ServicePgBouncer}},
		{"but not if there is one", nil, env(ServicePostgres, ServiceRedis), []Service{ServicePgBouncer, ServiceRedisCluster}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, err := Wanted(c.only, c.env); err != nil || !slices.Equal(got, c.want) {
				t.Errorf("got %v, %v, want %v", got, err, c.want)
			}
		})
	}
	if _, err := Wanted([]Service{"mysql"}, env()); err == nil {
		t.Error("an unknown service was accepted")
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestNoPortIsGivenOutTwiceOrWhileItIsTaken(t *testing.T) {
	seen := map[int]bool{}
	for range 100 {
		port, err := freePort()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] {
			t.Fatalf("port %d was given out twice", port)
		}
		seen[port] = true
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if isFree(l.Addr().(*net.TCPAddr).Port) {
		t.Error("a port that is listened on counts as free")
	}
}

func TestAFolderIsRemovedOnceItsProcessIsGone(t *testing.T) {
	parent := t.TempDir()
	t.Setenv("TMPDIR", parent)
	alive, err := NewFolder()
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Close()
	// A killed process's folder is there and its lock is not held.
	killed := filepath.Join(parent, folderPrefix+"killed")
	if err := os.MkdirAll(filepath.Join(killed, "postgres"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(killed, lockName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	unlocked := filepath.Join(parent, folderPrefix+"just-made")
	if err := os.Mkdir(unlocked, 0o700); err != nil {
		t.Fatal(err)
	}

	next, err := NewFolder()
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Close(); err != nil {
		t.Error(err)
	}
	for path, want := range map[string]bool{killed: false, next.Path: false, unlocked: true, alive.Path: true} {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) == want {
			t.Errorf("%s: %v, want it there: %v", path, err, want)
		}
	}
}

func TestThePolicyForInstalledServersIsPutBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy-rc.d")
	restore, err := holdServers(path)
	if err != nil {
		t.Fatal(err)
	}
	if !executable(path) {
		t.Error("there is no policy while packages are installed")
	}
	if err := restore(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("our policy is still there: %v", err)
	}

	if err := os.WriteFile(path, []byte("theirs"), 0o700); err != nil {
		t.Fatal(err)
	}
	if restore, err = holdServers(path); err != nil {
		t.Fatal(err)
	}
	if err := restore(); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "theirs" {
		t.Errorf("the administrator's policy is %q, %v", text, err)
	}
}

func TestPgBouncerLogsInAsTheURLSays(t *testing.T) {
	target, err := pgx.ParseConfig("postgres://o%27brien:p%20w@db.example:6543/app")
	if err != nil {
		t.Fatal(err)
	}
	if ini := pgbouncerINI(7000, target); !strings.Contains(ini, "* = host='db.example' port=6543 user='o''brien' password='p w'\n") {
		t.Errorf("pgbouncer.ini is\n%s", ini)
	}
}

// installed skips a test of servers that this machine does not have.
func installed(t *testing.T, services ...Service) *Folder {
	t.Helper()
	if err := Missing(services); err != nil {
		t.Skip(err) // make test installs them, unless it is given servers elsewhere
	}
	folder, err := NewFolder()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := folder.Close(); err != nil {
			t.Error(err)
		}
	})
	return folder
}

func TestACrashedPostgresComesBackWithWhatWasCommitted(t *testing.T) {
	folder := installed(t, ServicePostgres)
	p, err := StartPostgres(t.Context(), filepath.Join(folder.Path, "pg"), "max_prepared_transactions=7")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Crash()
	ask := func(question string) string {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), p.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		var answer string
		if err := conn.QueryRow(t.Context(), question).Scan(&answer); err != nil {
			t.Fatalf("%s: %v", question, err)
		}
		return answer
	}
	for setting, want := range map[string]string{
		"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "max_connections": "300", "max_prepared_transactions": "7",
	} {
		if got := ask("show " + setting); got != want {
			t.Errorf("%s is %s, want %s", setting, got, want)
		}
	}
	if conn, err := pgx.Connect(t.Context(), p.URL); err != nil {
		t.Fatal(err)
	} else if _, err := conn.Exec(t.Context(), "create table kept (n int)"); err != nil {
		t.Fatal(err)
	}
	if err := p.Crash(); err != nil {
		t.Fatal(err)
	}
	if conn, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(p.URL, "postgres://postgres@"), "/postgres?sslmode=disable")); err == nil {
		conn.Close()
		t.Fatal("a crashed server takes connections")
	}
	if err := p.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	ask("select count(*)::text from kept")
	if log := string(p.logTail()); !strings.Contains(log, "not properly shut down") {
		t.Errorf("that was no crash:\n%s", log)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
}

func TestTheThreeRedisNodesShareAllSlots(t *testing.T) {
	folder := installed(t, ServiceRedisCluster)
	c, err := StartRedisCluster(t.Context(), filepath.Join(folder.Path, "cluster"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Crash()
	for _, addr := range c.Addrs() {
		cl := client(addr)
		t.Cleanup(func() { cl.Close() })
		info, err := cl.ClusterInfo(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"cluster_state:ok", "cluster_slots_ok:16384", "cluster_size:3"} {
			if !strings.Contains(info, want+"\r\n") {
				t.Errorf("%s does not say %s:\n%s", addr, want, info)
			}
		}
		for setting, want := range map[string]string{"appendonly": "yes", "maxmemory-policy": "noeviction"} {
			if got := cl.ConfigGet(t.Context(), setting).Val()[setting]; got != want {
				t.Errorf("%s is %s, want %s", setting, got, want)
			}
		}
	}
}

func TestAServerThatDoesNotStartIsReportedWithItsLog(t *testing.T) {
	folder := installed(t, ServiceRedis)
	_, err := StartRedis(t.Context(), filepath.Join(folder.Path, "redis"), "appendfsync sometimes")
	if err == nil || !strings.Contains(err.Error(), "appendfsync") {
		t.Errorf("the error does not say what Redis said: %v", err)
	}
}
