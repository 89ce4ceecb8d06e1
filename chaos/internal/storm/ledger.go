package storm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/fencedrun/fencedrun/ledger"
	"github.com/fencedrun/fencedrun/ledger/pgledger"
	"github.com/fencedrun/fencedrun/ledger/redisledger"
	"github.com/fencedrun/fencedrun/ledger/sqliteledger"
)

// place is where a ledger is.
type place struct {
	Kind string `json:"kind"` // sqlite, postgres or redis
	URL  string `json:"url"`  // or the file's name
	Tag  string `json:"tag"`  // its schema, or the prefix of its keys
	// Own is a server that the storm started. It may crash, so it must be set to bear that.
	Own bool `json:"own,omitempty"`
}

func (p place) open(ctx context.Context) (ledger.Store, error) {
	switch p.Kind {
	case postgres:
		return pgledger.Connect(ctx, p.URL, &pgledger.Config{Schema: p.Tag})
	case redisKV:
		// A server that somebody else started is not restarted here, so it forgets nothing. In
		// production, leave these two out.
		return redisledger.Connect(ctx, p.URL, &redisledger.Config{
			Prefix: p.Tag, AcceptNoAOF: !p.Own, AcceptEviction: !p.Own, Logger: slog.New(slog.DiscardHandler),
		})
	default:
		return sqliteledger.Open(ctx, p.URL, nil)
	}
}

// through returns the same place, reached by way of a proxy.
func (p place) through(proxy string) place {
	if p.Kind != sqlite {
		p.URL = named(p.Kind, p.URL, p.Tag, proxy)
	}
	return p
}

// makePlace prepares a ledger of this storm's own.
func makePlace(ctx context.Context, url, tag, folder string) (place, error) {
	kind, err := kindOf("ledger", url)
	if err != nil {
		return place{}, err
	}
	p := place{Kind: kind, URL: url, Tag: tag}
	switch kind {
	case sqlite:
		p.URL = filepath.Join(folder, "ledger.db")
	case postgres:
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return p, fmt.Errorf("the ledger's server cannot be used: %w", err)
		}
		err = pgledger.Migrate(ctx, conn, tag)
		if err = errors.Join(err, conn.Close(ctx)); err != nil {
			return p, fmt.Errorf("the ledger's server cannot be used: %w", err)
		}
	}
	return p, nil
}

// remove takes what makePlace and the workers made out of the server.
func (p place) remove(ctx context.Context) error {
	switch p.Kind {
	case postgres:
		return dropSchema(ctx, p.URL, p.Tag)
	case redisKV:
		client, err := dialRedis(p.URL)
		if err != nil {
			return err
		}
		return errors.Join(removeKeys(ctx, client, p.Tag+":*"), client.Close())
	}
	return nil
}

func dropSchema(ctx context.Context, url, schema string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("storm: drop schema %s: %w", schema, err)
	}
	_, err = conn.Exec(ctx, text("sql/drop_schema.sql", "{schema}", pgx.Identifier{schema}.Sanitize()))
	if err = errors.Join(err, conn.Close(ctx)); err != nil {
		return fmt.Errorf("storm: drop schema %s: %w", schema, err)
	}
	return nil
}

func dialRedis(url string) (*redis.Client, error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("storm: redis: %w", err)
	}
	return redis.NewClient(options), nil
}

func removeKeys(ctx context.Context, client *redis.Client, pattern string) error {
	scan := client.Scan(ctx, 0, pattern, 1000).Iterator()
	var keys []string
	flush := func() error {
		if len(keys) == 0 {
			return nil
		}
		err := client.Unlink(ctx, keys...).Err()
		keys = keys[:0]
		return err
	}
	for scan.Next(ctx) {
		if keys = append(keys, scan.Val()); len(keys) == 1000 {
			if err := flush(); err != nil {
				return fmt.Errorf("storm: remove keys: %w", err)
			}
		}
	}
	if err := errors.Join(scan.Err(), flush()); err != nil {
		return fmt.Errorf("storm: remove keys: %w", err)
	}
	return nil
}

// quietRedis keeps go-redis from writing to standard error that a connection broke.
type quietRedis struct{}

func (quietRedis) Printf(context.Context, string, ...any) {}

// server drops its clients.
type server interface {
	// list names the connections of the storm's workers.
	list(ctx context.Context) ([]string, error)
	drop(ctx context.Context, connection string) error
	// forget makes the server forget its scripts; false means that it has none.
	forget(ctx context.Context) (bool, error)
	reconnect() // drops the coordinator's own connections
	close()
}

type pgServer struct {
	pool *pgxpool.Pool
	tag  string
}

func (s *pgServer) list(ctx context.Context) ([]string, error) {
	rows, err := s.pool.Query(ctx, text("sql/backends.sql"), s.tag)
	if err != nil {
		return nil, fmt.Errorf("storm: backends: %w", err)
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	list := make([]string, len(pids))
	for i, pid := range pids {
		list[i] = fmt.Sprint(pid)
	}
	return list, err
}

func (s *pgServer) drop(ctx context.Context, connection string) error {
	var pid int32
	if _, err := fmt.Sscan(connection, &pid); err != nil {
		return err
	}
	_, err := s.pool.Exec(ctx, text("sql/terminate.sql"), pid)
	return err
}

func (s *pgServer) forget(context.Context) (bool, error) { return false, nil }

func (s *pgServer) reconnect() { s.pool.Reset() }

func (s *pgServer) close() { s.pool.Close() }

type redisServer struct {
	client *redis.Client
	tag    string
}

func (s *redisServer) reconnect() {} // go-redis looks before it uses a connection

func (s *redisServer) close() { _ = s.client.Close() }

func (s *redisServer) forget(ctx context.Context) (bool, error) {
	return true, s.client.ScriptFlush(ctx).Err()
}

func openServer(ctx context.Context, kind, url, tag string) (server, error) {
	switch kind {
	case postgres:
		pool, err := pgxpool.New(ctx, url)
		if err != nil {
			return nil, fmt.Errorf("storm: postgres: %w", err)
		}
		return &pgServer{pool, tag}, nil
	case redisKV:
		client, err := dialRedis(url)
		if err != nil {
			return nil, err
		}
		return &redisServer{client, tag}, nil
	}
	return nil, nil
}
