package redisledger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// check refuses servers that could lose claims without anybody noticing.
func (s *Store) check(ctx context.Context) error {
	var err error
	switch {
	case s.cluster != nil:
		err = s.cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
			if err := s.checkServer(ctx, master); err != nil {
				return fmt.Errorf("node %s: %w", master.Options().Addr, err)
			}
			return nil
		})
	default:
		err = s.checkServer(ctx, s.client)
	}
	if err != nil {
		return err
	}
	return s.checkFormat(ctx)
}

// checkFormat makes sure that what is stored is in this version's form. It writes, so that a server
// that may not be written is noticed now.
func (s *Store) checkFormat(ctx context.Context) error {
	key := s.config.Prefix + ":format"
	if s.config.MustExist {
		switch err := s.client.Get(ctx, key).Err(); {
		case errors.Is(err, redis.Nil):
			return fmt.Errorf("%w: nothing was stored under the prefix %q", ErrNoLedger, s.config.Prefix)
		case err != nil:
			return fmt.Errorf("read %s: %w", key, err)
		}
	}
	if err := s.client.SetNX(ctx, key, format, 0).Err(); err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	is, err := s.client.Get(ctx, key).Result()
	if err != nil && !errors.Is(err, redis.Nil) { // a replica that lags may not have it yet
		return fmt.Errorf("read %s: %w", key, err)
	}
	if err == nil && is != format {
		return fmt.Errorf("%s is %.20q, this version of the library reads %s: another version, or something else, uses this prefix", key, is, format)
	}
	return nil
}

type server interface {
	Info(ctx context.Context, sections ...string) *redis.StringCmd
	ConfigGet(ctx context.Context, parameter string) *redis.MapStringStringCmd
}

func (s *Store) checkServer(ctx context.Context, node server) error {
	info, err := s.info(ctx, node)
	if err != nil {
		return err
	}
	if err := s.checkKind(info, node); err != nil {
		return err
	}
	// INFO knows both settings as well, and is allowed nearly everywhere.
	policy, err := s.setting(ctx, node, "maxmemory-policy", info["maxmemory_policy"])
	if err != nil {
		return err
	}
	aof := map[string]string{"0": "no", "1": "yes"}[info["aof_enabled"]]
	if aof, err = s.setting(ctx, node, "appendonly", aof); err != nil {
		return err
	}
	switch {
	case policy != "" && policy != "noeviction" && !s.config.AcceptEviction:
		return fmt.Errorf("maxmemory-policy is %s: with its memory full the server deletes claims, and their effects are done again; "+
			"set it to noeviction, or accept that with Config.AcceptEviction", policy)
	case aof == "no" && !s.config.AcceptNoAOF:
		return errors.New("appendonly is no: a restart of the server forgets what was claimed since its last snapshot, and it is done again; " +
			"set it to yes, or accept that with Config.AcceptNoAOF")
	case aof != "yes":
		return nil
	}
	fsync, err := s.setting(ctx, node, "appendfsync", "")
	if fsync == "no" {
		s.config.Logger.WarnContext(ctx, "redisledger: appendfsync is no: a power cut may lose half a minute of claims, and their effects are done again; set it to everysec or always")
	}
	return err
}

// info returns what INFO says, and nothing where the server does not allow it.
func (s *Store) info(ctx context.Context, node server) (map[string]string, error) {
	said, err := node.Info(ctx).Result()
	if refused(err) {
		s.config.Logger.WarnContext(ctx, "redisledger: the server does not allow INFO: its version and role are not checked", slog.Any("error", err))
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the server cannot be reached: %w", err)
	}
	info := map[string]string{}
	for line := range strings.Lines(said) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info, nil
}

// setting returns what CONFIG says, or what is known otherwise where the server does not allow it;
// "" if that is nothing.
func (s *Store) setting(ctx context.Context, node server, name, otherwise string) (string, error) {
	said, err := node.ConfigGet(ctx, name).Result()
	switch {
	case refused(err):
		if otherwise == "" {
			s.config.Logger.WarnContext(ctx, "redisledger: the server does not allow CONFIG: a setting is not checked", slog.String("setting", name), slog.Any("error", err))
		}
		return otherwise, nil
	case err != nil:
		return "", fmt.Errorf("CONFIG GET %s: %w", name, err)
	case said[name] == "":
		return otherwise, nil
	}
	return said[name], nil
}

// refused reports whether the server answered that it will not, or that it does not know how.
func refused(err error) bool {
	var said redis.Error
	return errors.As(err, &said) && !errors.Is(err, redis.Nil)
}

// checkKind looks at what the server is.
func (s *Store) checkKind(info map[string]string, node server) error {
	version := info["redis_version"]
	if version != "" {
		if !atLeast(version, 6, 2) {
			return fmt.Errorf("the server is Redis %s: 6.2 or newer is needed", version)
		}
		if s.config.WaitAOF != nil && !atLeast(version, 7, 2) {
			return fmt.Errorf("the server is Redis %s: Config.WaitAOF needs 7.2 or newer; use appendfsync always, or Config.Wait", version)
		}
	}
	if info["role"] == "slave" {
		return fmt.Errorf("the server is a replica of %s:%s: connect to its master, or through Sentinel", info["master_host"], info["master_port"])
	}
	if s.together && info["cluster_enabled"] == "1" {
		return errors.New("the server is a node of a Cluster: give Connect several hosts, or Open a redis.ClusterClient")
	}
	if client, ok := node.(*redis.Client); ok {
		return s.checkTimeout(client.Options().ReadTimeout)
	}
	return nil
}

func (s *Store) checkTimeout(read time.Duration) error {
	for name, w := range map[string]*Wait{"Wait": s.config.Wait, "WaitAOF": s.config.WaitAOF} {
		if w != nil && read > 0 && w.Timeout >= read {
			return fmt.Errorf("Config.%s.Timeout is %v, but the client's ReadTimeout is %v and must be longer", name, w.Timeout, read)
		}
	}
	return nil
}

func atLeast(version string, major, minor int) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return true
	}
	a, errA := strconv.Atoi(parts[0])
	b, errB := strconv.Atoi(parts[1])
	return errA != nil || errB != nil || a > major || a == major && b >= minor
}
