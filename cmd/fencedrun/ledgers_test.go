//go:build unix

package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fencedrun/fencedrun/internal/race"
	"github.com/fencedrun/fencedrun/internal/services/private"
)

// Every operators' command, as a process, on every kind of ledger: see testdata/ledger. Each
// script has a ledger of its own, which FENCEDRUN_LEDGER leads to.
func TestOperatorScripts(t *testing.T) {
	race.Skip(t, "hundreds of processes")
	for _, l := range []struct {
		name string
		make func(t *testing.T) func(*testscript.Env) error
	}{{"sqlite", onSQLite}, {"postgres", onPostgres}, {"redis", onRedis}} {
		t.Run(l.name, func(t *testing.T) {
			setup := l.make(t)
			p := params("testdata/ledger")
			p.Setup = func(env *testscript.Env) error {
				env.Setenv("LEDGER", l.name)
				return setup(env)
			}
			common := p.Condition
			p.Condition = func(cond string) (bool, error) {
				switch cond {
				case "sqlite", "postgres", "redis":
					return cond == l.name, nil
				}
				return common(cond)
			}
			testscript.Run(t, p)
		})
	}
}

func onSQLite(*testing.T) func(*testscript.Env) error {
	return func(env *testscript.Env) error {
		env.Setenv("FENCEDRUN_LEDGER", "sqlite:"+env.WorkDir+"/ledger.db")
		return nil
	}
}

// counter tells the databases of one process apart.
var counter atomic.Int64

// onPostgres makes a database for each script.
func onPostgres(t *testing.T) func(*testscript.Env) error {
	at := private.ServicePostgres.Need(t)
	return func(env *testscript.Env) error {
		ctx := context.Background()
		name := fmt.Sprintf("fencedrun_operator_%d", counter.Add(1))
		conn, err := pgx.Connect(ctx, at)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		for _, sql := range []string{"drop database if exists " + name + " with (force)", "create database " + name} {
			if _, err := conn.Exec(ctx, sql); err != nil {
				return err
			}
		}
		env.Defer(func() {
			conn, err := pgx.Connect(ctx, at)
			if err != nil {
				return
			}
			defer conn.Close(ctx)
			_, _ = conn.Exec(ctx, "drop database if exists "+name+" with (force)")
		})
		u, err := url.Parse(at)
		if err != nil {
			return err
		}
		u.Path = "/" + name
		env.Setenv("FENCEDRUN_LEDGER", u.String())
		return nil
	}
}

// onRedis empties a database for each script: these numbers are used by no other test.
func onRedis(t *testing.T) func(*testscript.Env) error {
	at := private.ServiceRedis.Need(t)
	options, err := redis.ParseURL(at)
	if err != nil {
		t.Fatal(err)
	}
	var used atomic.Int64
	return func(env *testscript.Env) error {
		o := *options
		if o.DB = int(used.Add(1)); o.DB > 8 {
			return fmt.Errorf("database %d is of another test: put two scripts into one", o.DB)
		}
		client := redis.NewClient(&o)
		defer client.Close()
		if err := client.FlushDB(context.Background()).Err(); err != nil {
			return err
		}
		base, _, _ := strings.Cut(at, "?")
		if i := strings.LastIndexByte(base, '/'); i > len("rediss://") {
			base = base[:i]
		}
		env.Setenv("FENCEDRUN_LEDGER", fmt.Sprintf("%s/%d", base, o.DB))
		return nil
	}
}
