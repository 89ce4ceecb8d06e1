package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/fencedrun/fencedrun/cmd/fencedrun/internal/shell"
	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/pgledger"
	"github.com/fencedrun/fencedrun/ledger/redisledger"
	"github.com/fencedrun/fencedrun/ledger/sqliteledger"
	"github.com/fencedrun/fencedrun/runs"
)

// ledgerVariable is the environment variable that says where the ledger is.
const ledgerVariable = "FENCEDRUN_LEDGER"

// openBound is how long a server may take to be reached.
const openBound = 20 * time.Second

// migrateBound is how long tables may take to be made: others may hold locks on them.
const migrateBound = 10 * time.Minute

// kind is what a ledger is kept in.
type kind int

const (
	onPostgres kind = iota + 1
	onRedis
	onSQLite
)

// place is where a ledger is, as the flags say.
type place struct {
	url, namespace, schema, prefix string
	retention                      duration // of what a command writes; 0: the library's default
}

func (p *place) flags(root *cobra.Command) {
	f := root.PersistentFlags()
	f.StringVar(&p.url, "ledger", "", "`URL` of the ledger: postgres://…, redis://…, rediss://… or sqlite:PATH (default: "+ledgerVariable+" of the environment)")
	f.StringVar(&p.namespace, "namespace", "", "the `NAME` that the service has as Config.Namespace (default: none)")
	f.StringVar(&p.schema, "schema", "", "the `NAME` of the schema in Postgres (default: "+pgledger.DefaultSchema+")")
	f.StringVar(&p.prefix, "prefix", "", "the `NAME` before all keys in Redis (default: fencedrun)")
}

func (p *place) retentionFlag(cmd *cobra.Command) {
	cmd.Flags().Var(&p.retention, "retention", "how long what this writes is kept: your service's Config.Retention (default: 30d)")
	cmd.Flags().Lookup("retention").DefValue = ""
}

// program is how a command begins that asks the same ledger. A URL may hold a password, which is
// not repeated.
func (p *place) program() string {
	words := []string{"fencedrun"}
	if p.url != "" {
		shown := shell.Word(p.url)
		if u, err := url.Parse(p.url); err != nil || u.User != nil {
			shown = "…"
		}
		words = append(words, "--ledger", shown)
	}
	for _, f := range []struct{ name, value string }{{"namespace", p.namespace}, {"schema", p.schema}, {"prefix", p.prefix}} {
		if f.value != "" {
			words = append(words, "--"+f.name, shell.Word(f.value))
		}
	}
	return strings.Join(words, " ")
}

// at returns where the ledger is; errors do not show a URL, which may hold a password.
func (p *place) at() (kind, string, error) {
	address, from := p.url, "--ledger"
	if address == "" {
		address, from = os.Getenv(ledgerVariable), ledgerVariable
	}
	scheme, rest, _ := strings.Cut(address, ":")
	var is kind
	switch scheme {
	case "postgres", "postgresql":
		is = onPostgres
	case "redis", "rediss":
		is = onRedis
	case "sqlite":
		is, address = onSQLite, rest
	}
	switch {
	case p.url == "" && address == "":
		return 0, "", usagef("where is the ledger? Give --ledger URL, or set %s: postgres://…, redis://…, rediss://… or sqlite:PATH", ledgerVariable)
	case is == 0:
		return 0, "", usagef("%s begins with %q, which is none of postgres://…, redis://…, rediss://… and sqlite:PATH", from, head(scheme, 20))
	case is == onSQLite && address == "", is != onSQLite && !strings.HasPrefix(rest, "//"):
		return 0, "", usagef("%s is incomplete: write postgres://…, redis://…, rediss://… or sqlite:PATH", from)
	case p.schema != "" && is != onPostgres:
		return 0, "", usagef("--schema is for ledgers on Postgres")
	case p.prefix != "" && is != onRedis:
		return 0, "", usagef("--prefix is for ledgers on Redis")
	}
	return is, address, nil
}

// store opens the ledger. It never makes one: a typing error must not look like an empty ledger.
func (p *place) store(ctx context.Context) (ledger.Store, error) {
	is, address, err := p.at()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, openBound)
	defer cancel()
	switch is {
	case onPostgres:
		// Pooler: a few statements need no plans, and nobody should have to know at night
		// what stands in front of the server.
		store, err := pgledger.Connect(ctx, address, &pgledger.Config{Schema: p.schema, Pooler: true})
		if errors.Is(err, pgledger.ErrNotMigrated) {
			return nil, fmt.Errorf("%w\nThe library's tables are not there, or are those of an older version: run fencedrun migrate%s,\n"+
				"or is it another database, or another --schema?", err, p.migrateFlags())
		}
		return some(store, err)
	case onRedis:
		redis.SetLogger(silent{})
		// What the service accepted of its server is not for its operators to refuse; doctor
		// says it.
		store, err := redisledger.Connect(ctx, address, &redisledger.Config{
			Prefix: p.prefix, MustExist: true, AcceptEviction: true, AcceptNoAOF: true, Logger: slog.New(slog.DiscardHandler),
		})
		if errors.Is(err, redisledger.ErrNoLedger) {
			return nil, fmt.Errorf("%w\nNo worker has opened a ledger there yet; or is it another database (redis://host/1), or another --prefix?", err)
		}
		return some(store, err)
	default:
		store, err := sqliteledger.Open(ctx, address, &sqliteledger.Config{MustExist: true})
		if errors.Is(err, sqliteledger.ErrNoLedger) {
			return nil, fmt.Errorf("%w\nIs the path right? A worker makes the file when it starts, and fencedrun migrate --ledger sqlite:%s does", err, address)
		}
		return some(store, err)
	}
}

// silent is where go-redis writes each try to connect: the last one's error is printed anyway.
type silent struct{}

// Printf prints nothing.
func (silent) Printf(context.Context, string, ...any) {}

// some keeps a nil store of a type from becoming a Store that is not nil.
func some[S ledger.Store](store S, err error) (ledger.Store, error) {
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w\nNothing answered within %v: are host and port right, is there a firewall, and does the server speak TLS as the URL says?", err, openBound)
	}
	if err != nil {
		return nil, err
	}
	return store, nil
}

func (p *place) migrateFlags() string {
	if p.schema == "" {
		return ""
	}
	return " --schema " + p.schema
}

// keeper opens the ledger and a keeper over it, which closes it.
func (p *place) keeper(ctx context.Context) (*runs.Keeper, error) {
	store, err := p.store(ctx)
	if err != nil {
		return nil, err
	}
	k, err := runs.New(store, &runs.Config{Namespace: p.namespace, Retention: time.Duration(p.retention)})
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return k, nil
}

// with runs f on the ledger.
func (p *place) with(cmd *cobra.Command, f func(ctx context.Context, k *runs.Keeper) error) (err error) {
	ctx, stop := interruptible(cmd)
	defer stop()
	k, err := p.keeper(ctx)
	if err != nil {
		return err
	}
	err = f(ctx, k)
	if closed := k.Close(); err == nil && closed != nil {
		err = fmt.Errorf("close the ledger: %w", closed)
	}
	return err
}
