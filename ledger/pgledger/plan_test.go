package pgledger_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fencedrun/fencedrun/fence"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/pgledger"
)

const long = 10_000

// history makes one conversation of 10,000 rows, "long", among 3,000 of three rows each.
func history(t *testing.T, pool *pgxpool.Pool, schema string) {
	t.Helper()
	run(t, pool, strings.ReplaceAll(fmt.Sprintf(`
		insert into S.conversation (name, tag, head, due)
			select convert_to(case n when 0 then 'long' else 'c' || n end, 'UTF8'), 't', 'h', 5 from generate_series(0, 3000) n;
		insert into S.record (conv, key, open, at, landed, due, body)
			select c.id, convert_to('k' || n, 'UTF8'), n %% 3, n * 5000 + c.id, n, n * 5000 + c.id, 'x'
			from S.conversation c, lateral generate_series(1, case when name = 'long' then %d else 3 end) n;
		insert into S.lease (conv, run, nonce, until) select id, 'r', 'n', 1 from S.conversation;
		insert into S.home (run, conversation, tombstone, due)
			select convert_to('r' || id, 'UTF8'), case when id %% 2 = 0 then name end, case when id %% 2 = 1 then 'x'::bytea end, id from S.conversation;
		analyze S.conversation; analyze S.record; analyze S.lease; analyze S.home`, long), "S", schema), pgx.QueryExecModeSimpleProtocol)
}

var (
	parameter = regexp.MustCompile(`\$(\d+)`)
)

// generic returns the plan of a statement that does not look at its arguments.
func generic(t *testing.T, pool *pgxpool.Pool, text string) string {
	t.Helper()
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	highest := 0
	for _, m := range parameter.FindAllStringSubmatch(text, -1) {
		n := 0
		_, _ = fmt.Sscan(m[1], &n)
		highest = max(highest, n)
	}
	nulls := strings.Join(slices.Repeat([]string{"null"}, highest), ", ")
	ask := func(sql string) (lines []string) {
		t.Helper()
		results, err := conn.Conn().PgConn().Exec(t.Context(), sql).ReadAll()
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		for _, row := range results[0].Rows {
			lines = append(lines, string(row[0]))
		}
		return lines
	}
	ask("set plan_cache_mode = force_generic_plan")
	ask("prepare planned as " + text)
	plan := ask("explain execute planned(" + nulls + ")")
	ask("deallocate planned")
	ask("reset plan_cache_mode")
	return strings.Join(plan, "\n")
}

// Every statement finds its rows by an index: with one conversation of 10,000 rows among many
// small ones none may walk through all of them.
func TestNoStatementWalksThroughATableOrAConversation(t *testing.T) {
	_, pool, schema := newStore(t)
	history(t, pool, schema)
	walk := regexp.MustCompile(`Seq Scan on (conversation|record|lease|home)\b`)
	// A condition on the conversation alone reads all its rows, and filters.
	whole := regexp.MustCompile(`(?:Index|Recheck) Cond: \(?\(?(?:r\.)?conv = [^)]*\)$`)
	mayReadWhole := []string{"drop", "scan_due_one", "scan_open_one 1"} // the ledger asks neither scan
	for name, text := range pgledger.Queries(schema) {
		plan := generic(t, pool, text)
		if walk.MatchString(plan) {
			t.Errorf("%s walks through a table:\n%s", name, plan)
		}
		lines := strings.Split(plan, "\n")
		for i, line := range lines {
			if whole.MatchString(strings.TrimSpace(line)) && !slices.Contains(mayReadWhole, name) && !strings.Contains(lines[i-1], "lease") &&
				!strings.Contains(lines[i-1], "record_inbound") && !strings.Contains(lines[i-2], "lease") {
				t.Errorf("%s reads a whole conversation:\n%s", name, plan)
			}
		}
	}
}

// blocks says how many pages a statement touches.
func blocks(t *testing.T, tx pgx.Tx, text string, args ...any) int {
	t.Helper()
	var plan []byte
	args = append([]any{pgx.QueryExecModeCacheDescribe}, args...)
	if err := tx.QueryRow(t.Context(), "explain (analyze, buffers, format json) "+text, args...).Scan(&plan); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	var parsed []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	if err := json.Unmarshal(plan, &parsed); err != nil {
		t.Fatal(err)
	}
	return parsed[0].Plan.Hit + parsed[0].Plan.Read
}

func TestALongConversationCostsWhatAShortOneDoes(t *testing.T) {
	_, pool, schema := newStore(t, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["plan_cache_mode"] = "force_generic_plan" })
	history(t, pool, schema)
	q := pgledger.Queries(schema)
	keys := func(of ...string) (all [][]byte) {
		for _, k := range of {
			all = append(all, []byte(k))
		}
		return all
	}
	type call struct {
		name string
		args []any
	}
	calls := func(conversation string, last int64) []call {
		c, tag := []byte(conversation), []byte("t")
		return []call{
			{"load", []any{c, keys("k1", "k2", "k3"), []byte("r1"), nil}},
			{"load_more", []any{c, keys("k1", "k2"), nil, nil, last - 3, nil}},
			{"put1", []any{c, tag, []byte("u"), []byte("h"), 5, []byte("k2"), 1, 5, 0, 9, []byte("x"), false, true, nil}},
			{"puts", []any{
				c, tag, []byte("u"), []byte("h"), 5, keys("k1", "new"), []int16{0, 0}, []int64{0, 0}, []int64{0, 0}, []int64{0, 0}, keys("x", "y"),
				keys("new", "new2"), true, nil,
			}},
			{"change", []any{
				c, tag, []byte("u"), []byte("h"), 5, keys("k1"), []int16{0}, []int64{0}, []int64{0}, []int64{0}, keys("x"), keys("new"), true, nil,
				keys("k2", "k3"), keys("r"), keys("n"), []int64{0}, nil, false, nil, keys("r2"),
			}},
			{"renew", []any{keys(conversation), keys("r"), keys("n"), int64(1000), nil, true}},
			{"scan_rows", []any{c, []byte(""), nil, []byte("k2"), int32(2)}},
		}
	}
	short, long := calls("c7", 3), calls("long", long)
	for i, c := range long {
		n := map[string]int{}
		for size, c := range map[string]call{"short": short[i], "long": c} {
			tx, rollback := begin(t, pool)
			n[size] = blocks(t, tx, q[c.name], c.args...)
			rollback()
		}
		if n["long"] > n["short"]+20 {
			t.Errorf("%s touches %d pages of a conversation of 3 rows and %d of one of 10,000", c.name, n["short"], n["long"])
		}
	}
}

// Scans are bounded by their limit, not by what there is.
func TestScansReadNoMoreThanTheyGive(t *testing.T) {
	_, pool, schema := newStore(t)
	history(t, pool, schema)
	q := pgledger.Queries(schema)
	tx, _ := begin(t, pool)
	first := int64(-1 << 63)
	for name, args := range map[string][]any{
		"scan_open 1":     {int64(1 << 40), []byte(""), nil, int32(10), first, []byte(""), []byte("")},
		"scan_open 2":     {int64(1 << 40), []byte(""), nil, int32(10), int64(25_000_001), []byte("long"), []byte("k5000")},
		"scan_open_one 2": {int64(1 << 40), []byte("long"), int32(10), first, []byte(""), []byte("")},
		"scan_rows":       {[]byte("long"), []byte(""), nil, nil, int32(10)},
		"exhume":          {int64(1 << 40), int32(5), true},
	} {
		if n := blocks(t, tx, q[name], args...); n > 150 {
			t.Errorf("%s of 10 rows touches %d pages", name, n)
		}
	}
}

// Planning costs as much as doing: it must stop after the first few executions.
func TestNoStatementIsPlannedAnewForEachExecution(t *testing.T) {
	store, pool, schema := newStore(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	history(t, pool, schema)
	const n = 40
	tag := "t"
	for i := range n {
		if _, err := store.Load(t.Context(), "long", ledger.Query{Keys: []string{"k1", fmt.Sprint("k", i)}}); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Load(t.Context(), "long", ledger.Query{Keys: []string{"k1"}, Tail: true, Since: long - 2, Open: true}); err != nil {
			t.Fatal(err)
		}
		for _, w := range []ledger.Write{
			{Put: []ledger.Row{ledger.NewRow(fmt.Sprint("new", i), fence.Index{Open: 1, At: 1}, []byte("x"))}, Absent: []string{fmt.Sprint("new", i)}},
			{Put: []ledger.Row{ledger.NewRow("a", noIndex, []byte("x")), ledger.NewRow(fmt.Sprint("b", i), noIndex, []byte("x"))}, Absent: []string{fmt.Sprint("b", i)}},
			{Leases: []ledger.LeaseWrite{{Run: "r", Nonce: "n", For: time.Minute}}, Delete: []string{fmt.Sprint("k", i)}},
		} {
			w.Tag, w.NewTag, w.Head = tag, tag+"1", ledger.NewRow("", noIndex, []byte("h"))
			must(t, store, "long", w)
			tag = w.NewTag
		}
		must(t, store, fmt.Sprint("made", i), ledger.Write{
			NewTag: "t", Head: ledger.NewRow("", noIndex, []byte("h")), Put: []ledger.Row{ledger.NewRow("a", noIndex, []byte("x"))},
			Leases: []ledger.LeaseWrite{{Run: "r", Nonce: "n", For: time.Minute}}, Home: &ledger.HomeWrite{Run: fmt.Sprint("new run ", i)},
		})
	}
	rows, err := pool.Query(t.Context(), "select statement, generic_plans, custom_plans from pg_prepared_statements where statement like '%'||$1||'%'", schema)
	if err != nil {
		t.Fatal(err)
	}
	type counts struct {
		Statement                 string
		GenericPlans, CustomPlans int64
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[counts])
	if err != nil || len(all) < 6 {
		t.Fatalf("%d prepared statements, %v", len(all), err)
	}
	for _, c := range all {
		if c.CustomPlans > 5 || c.GenericPlans+c.CustomPlans < n {
			t.Errorf("planned %d times for its arguments and %d times for any:\n%s", c.CustomPlans, c.GenericPlans, c.Statement)
		}
	}
}
