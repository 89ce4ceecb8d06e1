package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencedrun/fencedrun/examples/support-bot/internal/proc"
	"github.com/fencedrun/fencedrun/internal/services/private"
)

// The program starts itself again for its other processes; in a test that is the test binary.
func TestMain(m *testing.M) {
	if role := proc.Role(os.Args); role != "" {
		os.Exit(runRole(role))
	}
	os.Exit(m.Run())
}

// program runs the program as the shell would.
func program(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	folder := t.TempDir()
	var files [2]*os.File
	for i, name := range []string{"stdout", "stderr"} {
		file, err := os.Create(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = file.Close() })
		files[i] = file
	}
	status = run(args, files[0], files[1])
	var out [2]string
	for i, file := range files {
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(file)
		if err != nil {
			t.Fatal(err)
		}
		out[i] = string(text)
	}
	return status, out[0], out[1]
}

const short2 = `{"convo_id": "a", "original": [["customer", "Hi"], ["customer", "I am Ann"], ["customer", "Ann Lee"], ["action", "Account has been pulled up for Ann Lee."], ["agent", "Hello Ann"], ["customer", "Thanks"], ["agent", "Anything else?"], ["customer", "No"]]}
{"convo_id": "b", "original": [["customer", "Where is order 12345678?"], ["customer", "Hello?"], ["action", "Purchase validation in progress ..."], ["agent", "On its way"]]}
`

func TestWithoutFencingItDuplicatesOnRealQueues(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a few seconds of real time")
	}
	t.Setenv("TMPDIR", t.TempDir())
	input := filepath.Join(t.TempDir(), "input.jsonl")
	if err := os.WriteFile(input, []byte(short2), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"asynq", "river"} {
		t.Run(name, func(t *testing.T) {
			status, stdout, stderr := program(t, "--without", "--json", "--queue", name, "--input", input, "--redeliver", "1")
			if status != exitOK {
				t.Fatalf("exit status %d\n%s", status, stderr)
			}
			var got struct {
				Queue   string
				Seed    uint64
				Without map[string]int
				With    map[string]int
			}
			if err := json.Unmarshal([]byte(stdout), &got); err != nil {
				t.Fatalf("%v\n%s", err, stdout)
			}
			if got.Queue != name || got.Seed != 1 || got.With != nil {
				t.Errorf("%s", stdout)
			}
			r := got.Without
			if r["messages"] != 7 || r["unanswered"] != 0 || r["lost"] != 0 || r["unknown"] != 0 {
				t.Errorf("messages, unanswered, lost or unknown are off: %s", stdout)
			}
			if r["answers"]-r["duplicate_answers"] != r["messages"]-r["unanswered"] {
				t.Errorf("answers do not add up: %s", stdout)
			}
			if r["duplicate_answers"] == 0 || r["redeliveries"] < 2 || r["model_calls"] < 2 || r["kills"] == 0 {
				t.Errorf("it had no trouble: %s", stdout)
			}
		})
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestBadFlagsAreNamed(t *testing.T) {
	malformed := filepath.Join(t.TempDir(), "malformed.jsonl")
	if err := os.WriteFile(malformed, []byte(short2+"nope\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ args, want string }{
		{"--queue kafka", `--queue: "kafka"`},
		{"--queue river --redis redis://localhost", "--redis: only with --queue asynq"},
		{"--postgres postgres://localhost/x", "--postgres: only with --queue river"},
		{"--redis localhost", "--redis: "},
		{"--queue river --postgres postgres://localhost:port/x", "--postgres: "},
		{"--redis=", "--redis: empty"},
		{"--input=", "--input: empty"},
		{"--input /does/not/exist", "--input: open /does/not/exist"},
		{"--input " + malformed, "malformed.jsonl: line 3: not JSON"},
		{"--conversations 0", "--conversations: 0"},
		{"--conversations 10001", "--conversations: 10001"},
		{"--workers 0", "--workers: 0"},
		{"--workers 17", "--workers: 17"},
		{"--seed -1", "-seed"},
		{"--late -0.1", "--late: -0.1"},
		{"--late NaN", "--late: NaN"},
		{"--fail-before 2", "--fail-before: 2"},
		{"--act-and-timeout x", "-act-and-timeout"},
		{"--fail-before 0.6 --act-and-timeout 0.6", "--fail-before and --act-and-timeout"},
		{"--redeliver 1.1", "--redeliver: 1.1"},
		{"--drain 0s", "--drain: 0s"},
		{"--with --without", "--with and --without: each means only"},
		{"--nonsense", "-nonsense"},
		{"nonsense", `"nonsense"`},
	} {
		status, stdout, stderr := program(t, strings.Fields(test.args)...)
		if status != exitUsage || !strings.Contains(stderr, test.want) || stdout != "" {
			t.Errorf("%s: exit status %d, %q; want status %d and %q", test.args, status, stderr, exitUsage, test.want)
		}
	}
}

func TestAServerThatCannotBeReachedIsAWrongFlag(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for _, args := range [][]string{
		{"--queue", "river", "--postgres", "postgres://127.0.0.1:1/x"}, {"--redis", "redis://127.0.0.1:1"},
	} {
		for _, arm := range []string{"--with", "--without"} {
			if status, _, stderr := program(t, append(args, arm)...); status != exitUsage || !strings.Contains(stderr, "refused") {
				t.Errorf("%v %s: exit status %d, %s", args, arm, status, stderr)
			}
		}
	}
}

func TestHelpShowsTheFormatOfTheInput(t *testing.T) {
	status, stdout, _ := program(t, "-h")
	if status != exitOK || !strings.Contains(stdout, `"original": [["customer", "Hi!"]`) || !strings.Contains(stdout, "-act-and-timeout") {
		t.Errorf("exit status %d\n%s", status, stdout)
	}
}

func TestWhatIsPlayedByDefault(t *testing.T) {
	input := filepath.Join(t.TempDir(), "input.jsonl")
	if err := os.WriteFile(input, []byte(short2), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args     []string
		n        int
		arms     string
		messages int
	}{
		{nil, 12, "without with", 124},
		{[]string{"--conversations", "1"}, 1, "without with", 13},
		{[]string{"--without"}, 12, "without", 124},
		{[]string{"--with"}, 12, "with", 124},
		{[]string{"--input", input}, 2, "without with", 7},
		{[]string{"--input", input, "--conversations", "5"}, 5, "without with", 19},
	} {
		o, err := parseOptions(test.args, io.Discard)
		if err != nil {
			t.Errorf("%v: %v", test.args, err)
			continue
		}
		messages := 0
		for _, script := range o.scripts() {
			messages += script.Messages()
		}
		if o.n != test.n || strings.Join(o.arms, " ") != test.arms || messages != test.messages {
			t.Errorf("%v: %d conversations, %d messages, %v", test.args, o.n, messages, o.arms)
		}
	}
}

// The ledger is where the queue is: in the same Postgres, in the same Redis.
func TestTheBotOnRealServersDoublesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds of real time")
	}
	t.Setenv("TMPDIR", t.TempDir())
	input := filepath.Join(t.TempDir(), "input.jsonl")
	if err := os.WriteFile(input, []byte(short2), 0o600); err != nil {
		t.Fatal(err)
	}
	for queue, c := range map[string]struct {
		flag   string
		server private.Service
	}{
		"river": {"--postgres", private.ServicePostgres}, "asynq": {"--redis", private.ServiceRedis},
	} {
		t.Run(queue, func(t *testing.T) {
			url := c.server.Need(t)
			if queue == "asynq" {
				url = strings.TrimSuffix(url, "/0") + "/9" // it wants a database of its own
			}
			status, stdout, stderr := program(t, "--with", "--json", "--queue", queue, c.flag, url, "--input", input, "--redeliver", "1")
			if status != exitOK {
				t.Fatalf("exit status %d\n%s", status, stderr)
			}
			var got struct{ With map[string]int }
			if err := json.Unmarshal([]byte(stdout), &got); err != nil {
				t.Fatalf("%v\n%s", err, stdout)
			}
			r := got.With
			if r["messages"] != 7 || r["duplicate_answers"]+r["duplicate_effects"]+r["lost"] != 0 || r["answers"] == 0 || r["redeliveries"] == 0 {
				t.Errorf("%s", stdout)
			}
		})
	}
}
