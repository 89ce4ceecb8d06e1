//go:build unix

package private

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
)

// Postgres is a server whose superuser is postgres, without a password. Its durability is
// Postgres's default: what is committed has been flushed to the disk.
type Postgres struct {
	*Server

	URL string
}

// StartPostgres makes a database cluster in dir, which must not exist, and starts a server on
// it, with 300 connections and with every setting ("name=value") on top.
func StartPostgres(ctx context.Context, dir string, settings ...string) (*Postgres, error) {
	path, err := prepare(ServicePostgres, dir)
	if err != nil {
		return nil, fmt.Errorf("services: start postgres: %w", err)
	}
	data := filepath.Join(dir, "data")
	initdb, err := command(dir, filepath.Join(filepath.Dir(path), "initdb"),
		"--pgdata", data, "--username", "postgres", "--auth", "trust", "--encoding", "UTF8", "--no-locale", "--no-sync")
	if err != nil {
		return nil, fmt.Errorf("services: start postgres: %w", err)
	}
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("services: start postgres: initdb: %w\n%s", err, out)
	}

	p := &Postgres{}
	p.Server, err = onFreePort(ctx, func(port int) (*Server, error) {
		p.URL = fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", address(port))
		args := []string{"-D", data, "-p", strconv.Itoa(port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "max_connections=300"}
		for _, setting := range settings {
			args = append(args, "-c", setting)
		}
		// SIGQUIT is Postgres's immediate shutdown: it recovers from its log next time.
		return &Server{Dir: dir, path: path, args: args, quit: syscall.SIGQUIT, ready: answers(p.URL)}, nil
	})
	if err != nil {
		return nil, fmt.Errorf("services: start postgres: %w", err)
	}
	return p, nil
}

// Stop ends the server, whoever is connected, and keeps its data.
func (p *Postgres) Stop() error { return p.end(syscall.SIGINT) }

// prepare finds a service's server and makes its folder.
func prepare(s Service, dir string) (string, error) {
	path, ok := s.Find()
	if !ok {
		return "", &MissingError{Services: []Service{s}}
	}
	return path, folder(dir)
}

// answers returns a check that the server at url runs a statement.
func answers(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, "select 1", pgx.QueryExecModeSimpleProtocol)
		return err
	}
}

// PgBouncer is a pooler in transaction mode.
type PgBouncer struct {
	*Server

	URL string
}

// StartPgBouncer starts a pooler with 2 connections for each database of the Postgres at
// postgres, which every client uses as that URL's user. dir must not exist.
func StartPgBouncer(ctx context.Context, dir, postgres string) (*PgBouncer, error) {
	path, err := prepare(ServicePgBouncer, dir)
	if err != nil {
		return nil, fmt.Errorf("services: start pgbouncer: %w", err)
	}
	target, err := pgx.ParseConfig(postgres)
	if err != nil {
		return nil, fmt.Errorf("services: start pgbouncer: the Postgres behind it: %w", err)
	}
	p := &PgBouncer{}
	p.Server, err = onFreePort(ctx, func(port int) (*Server, error) {
		p.URL = (&url.URL{
			Scheme: "postgres", User: url.User(target.User), Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
			Path: "/" + target.Database, RawQuery: "sslmode=disable",
		}).String()
		ini := filepath.Join(dir, "pgbouncer.ini")
		if err := os.WriteFile(ini, []byte(pgbouncerINI(port, target)), 0o644); err != nil {
			return nil, err
		}
		return &Server{Dir: dir, path: path, args: []string{ini}, quit: syscall.SIGKILL, ready: answers(p.URL)}, nil
	})
	if err != nil {
		return nil, fmt.Errorf("services: start pgbouncer: %w", err)
	}
	return p, nil
}

func pgbouncerINI(port int, target *pgx.ConnConfig) string {
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
	login := fmt.Sprintf("host=%s port=%d user=%s", quote(target.Host), target.Port, quote(target.User))
	if target.Password != "" {
		login += " password=" + quote(target.Password)
	}
	return fmt.Sprintf(`[databases]
* = %s

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 2
max_db_connections = 2
max_client_conn = 250
server_tls_sslmode = prefer
`, login, port)
}
