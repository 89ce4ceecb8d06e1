//go:build unix

package storm

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fencedrun/fencedrun/internal/services/private"
)

// startMachine starts a server in a folder of its own, with the durability that the ledgers ask
// for. Redis flushes every change before it answers.
func startMachine(ctx context.Context, kind string) (machine, error) {
	service := map[string]private.Service{postgres: private.ServicePostgres, redisKV: private.ServiceRedis}[kind]
	if missing := (*private.MissingError)(nil); errors.As(private.Missing([]private.Service{service}), &missing) {
		return nil, fmt.Errorf("no %s is installed on this machine: install what Debian calls %s, or give the URL of a server that runs",
			kind, strings.Join(missing.Packages(), ", "))
	}
	folder, err := private.NewFolder()
	if err != nil {
		return nil, err
	}
	var m machine
	if dir := filepath.Join(folder.Path, kind); kind == postgres {
		var p *private.Postgres
		p, err = private.StartPostgres(ctx, dir)
		m = &ownPostgres{p, folder}
	} else {
		var r *private.Redis
		r, err = private.StartRedis(ctx, dir, "appendfsync always")
		m = &ownRedis{r, folder}
	}
	if err != nil {
		return nil, errors.Join(err, folder.Close())
	}
	return m, nil
}

// kill sends a signal to processes, in order.
func kill(signal syscall.Signal, pids ...int) error {
	for _, pid := range pids {
		if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("storm: send %v to process %d of a server: %w", signal, pid, err)
		}
	}
	return nil
}

// restarted kills a server and starts it on what it left behind.
func restarted(ctx context.Context, s *private.Server, down time.Duration) error {
	if err := s.Crash(); err != nil {
		return err
	}
	sleep(ctx, down)
	return s.Restart(ctx)
}

type ownRedis struct {
	*private.Redis

	folder *private.Folder
}

func (r *ownRedis) address() string { return "redis://" + r.Addr + "/0" }

func (r *ownRedis) freeze(context.Context) (func(), error) {
	pid := r.PID
	return func() { _ = kill(syscall.SIGCONT, pid) }, kill(syscall.SIGSTOP, pid)
}

func (r *ownRedis) restart(ctx context.Context, down time.Duration) error {
	return restarted(ctx, r.Server, down)
}

// crash does nothing: one process serves all.
func (r *ownRedis) crash(context.Context, string) (bool, error) { return false, nil }

func (r *ownRedis) close() error { return errors.Join(r.Crash(), r.folder.Close()) }

type ownPostgres struct {
	*private.Postgres

	folder *private.Folder
}

func (p *ownPostgres) address() string { return p.URL }

// hold stops the postmaster, and returns a connection whose backend still works. Nobody's backend
// starts meanwhile, and the number of one that ends is not given to another process.
func (p *ownPostgres) hold(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.Connect(ctx, p.URL)
	if err != nil {
		return nil, fmt.Errorf("storm: postgres: %w", err)
	}
	if err := kill(syscall.SIGSTOP, p.PID); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return conn, nil
}

func (p *ownPostgres) freeze(ctx context.Context) (func(), error) {
	conn, err := p.hold(ctx)
	if err != nil {
		return nil, err
	}
	var all []int
	thaw := func() {
		_ = kill(syscall.SIGCONT, append(all, p.PID)...)
		_ = conn.Close(context.WithoutCancel(ctx))
	}
	if all, err = processes(ctx, conn, text("sql/processes.sql")); err == nil {
		err = kill(syscall.SIGSTOP, all...)
	}
	if err != nil {
		thaw()
		return nil, err
	}
	return thaw, nil
}

func processes(ctx context.Context, conn *pgx.Conn, query string, args ...any) ([]int, error) {
	rows, err := conn.Query(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("storm: postgres: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[int])
}

func (p *ownPostgres) restart(ctx context.Context, down time.Duration) error {
	return restarted(ctx, p.Server, down)
}

// crash kills a worker's backend. The postmaster then ends all others, because any of them may
// have seen what the dead one left half done in memory, and recovers as after a crash.
func (p *ownPostgres) crash(ctx context.Context, tag string) (bool, error) {
	conn, err := p.hold(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	backends, err := processes(ctx, conn, text("sql/backends.sql"), tag)
	if err == nil && len(backends) > 0 {
		err = kill(syscall.SIGKILL, backends[0])
	}
	if err = errors.Join(err, kill(syscall.SIGCONT, p.PID)); err != nil || len(backends) == 0 {
		return false, err
	}
	// Only when our own backend has been ended is what answers next the recovered server.
	waiting, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for conn.Ping(waiting) == nil && sleep(waiting, poll/10) {
		continue
	}
	return true, persist(ctx, func(ctx context.Context) error {
		again, err := pgx.Connect(ctx, p.URL)
		if err != nil {
			return err
		}
		return again.Close(ctx)
	})
}

func (p *ownPostgres) close() error { return errors.Join(p.Crash(), p.folder.Close()) }
