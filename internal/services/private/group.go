//go:build unix

package private

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Group is the services of one run of the tests.
type Group struct {
	folder *Folder // everything they have, removed by Close
	values map[Service]string
	mu     sync.Mutex
	stops  []func() error
}

// Wanted returns the services of only, in order and with what they need, except those that the
// environment names already. Without only it is all services.
func Wanted(only []Service, lookup func(string) (string, bool)) ([]Service, error) {
	for _, s := range only {
		if !slices.Contains(Services(), s) {
			return nil, fmt.Errorf("services: there is no service %q, only %v", s, Services())
		}
	}
	var wanted []Service
	for _, s := range Services() {
		needed := len(only) == 0 || slices.Contains(only, s) || s == ServicePostgres && slices.Contains(only, ServicePgBouncer)
		if value, _ := lookup(s.Variable()); needed && value == "" {
			wanted = append(wanted, s)
		}
	}
	return wanted, nil
}

// Start starts services side by side in a new folder of the system's one for temporary files.
// A PgBouncer stands before the Postgres among them, or else before the one at postgres.
func Start(ctx context.Context, services []Service, postgres string) (*Group, error) {
	folder, err := NewFolder()
	if err != nil {
		return nil, err
	}
	g := &Group{folder: folder, values: map[Service]string{}}
	// The first that fails ends the others, and is the one to report.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	up := make(chan struct{}) // the Postgres that a PgBouncer needs
	if !slices.Contains(services, ServicePostgres) {
		close(up)
	}
	for _, s := range services {
		all.Go(func() {
			var err error
			switch s {
			case ServicePostgres:
				defer close(up)
				err = g.add(s)(g.postgres(ctx))
			case ServicePgBouncer:
				<-up
				g.mu.Lock()
				behind := g.values[ServicePostgres]
				g.mu.Unlock()
				if behind == "" {
					behind = postgres
				}
				if ctx.Err() == nil {
					err = g.add(s)(g.pgbouncer(ctx, behind))
				}
			case ServiceRedis:
				err = g.add(s)(g.redis(ctx))
			case ServiceRedisCluster:
				err = g.add(s)(g.cluster(ctx))
			}
			if err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// add takes down where a service is and how it is stopped.
func (g *Group) add(s Service) func(value string, stop func() error, err error) error {
	return func(value string, stop func() error, err error) error {
		if err != nil {
			return err
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.values[s] = value
		g.stops = append(g.stops, stop)
		return nil
	}
}

func (g *Group) postgres(ctx context.Context) (string, func() error, error) {
	p, err := StartPostgres(ctx, filepath.Join(g.folder.Path, string(ServicePostgres)))
	if err != nil {
		return "", nil, err
	}
	return p.URL, p.Crash, nil // nobody needs what a slow end would save
}

func (g *Group) pgbouncer(ctx context.Context, behind string) (string, func() error, error) {
	p, err := StartPgBouncer(ctx, filepath.Join(g.folder.Path, string(ServicePgBouncer)), behind)
	if err != nil {
		return "", nil, err
	}
	return p.URL, p.Crash, nil
}

func (g *Group) redis(ctx context.Context) (string, func() error, error) {
	r, err := StartRedis(ctx, filepath.Join(g.folder.Path, string(ServiceRedis)))
	if err != nil {
		return "", nil, err
	}
	return "redis://" + r.Addr + "/0", r.Crash, nil
}

func (g *Group) cluster(ctx context.Context) (string, func() error, error) {
	c, err := StartRedisCluster(ctx, filepath.Join(g.folder.Path, string(ServiceRedisCluster)))
	if err != nil {
		return "", nil, err
	}
	return strings.Join(c.Addrs(), ","), c.Crash, nil
}

// Env are the variables, "name=value", that lead tests to the services, in order.
func (g *Group) Env() []string {
	var env []string
	for _, s := range Services() {
		if value := g.values[s]; value != "" {
			env = append(env, s.Variable()+"="+value)
		}
	}
	return env
}

// Close ends all services and removes what they wrote.
func (g *Group) Close() error {
	var all sync.WaitGroup
	errs := make([]error, len(g.stops)+1)
	for i, stop := range g.stops {
		all.Go(func() { errs[i] = stop() })
	}
	all.Wait()
	errs[len(g.stops)] = g.folder.Close()
	g.stops = nil
	return errors.Join(errs...)
}
