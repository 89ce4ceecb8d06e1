package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/jackc/pgx/v5/pgxpool"
)

const dbosPath = "github.com/dbos-inc/dbos-transact-golang"

func tenSteps(ctx dbos.Context, input string) (string, error) {
	for range steps {
		if _, err := dbos.RunAsStep(ctx, func(context.Context) (string, error) { return input, nil }); err != nil {
			return "", err
		}
	}
	return input, nil
}

// openDBOS starts DBOS Transact in a database of its own on the same server, and returns a block
// whose step is one workflow, started and waited for.
func (w *world) openDBOS(ctx context.Context) (starter, error) {
	if _, err := w.pool.Exec(ctx, "create database dbos"); err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(w.url)
	if err != nil {
		return nil, err
	}
	config.ConnConfig.Database = "dbos"
	config.MaxConns = connections
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	c, err := dbos.NewContext(ctx, dbos.Config{
		AppName: "bench", SystemDBPool: pool, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("DBOS: %w", err)
	}
	dbos.RegisterWorkflow(c, tenSteps)
	if err := dbos.Launch(c); err != nil {
		pool.Close()
		return nil, fmt.Errorf("DBOS: launch: %w", err)
	}
	w.later(func() error {
		defer pool.Close()
		return dbos.Shutdown(c, 5*time.Second)
	})
	return always(steps, func(context.Context) error {
		handle, err := dbos.RunWorkflow(c, tenSteps, "x")
		if err != nil {
			return err
		}
		_, err = handle.GetResult()
		return err
	}), nil
}
