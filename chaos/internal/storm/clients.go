package storm

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

func (s *redisServer) list(ctx context.Context) ([]string, error) {
	all, err := s.client.ClientList(ctx).Result()
	if err != nil {
		return nil, fmt.Errorf("storm: clients: %w", err)
	}
	var list []string
	for line := range strings.Lines(all) {
		id, ours := "", false
		for field := range strings.FieldsSeq(line) {
			switch name, value, _ := strings.Cut(field, "="); name {
			case "id":
				id = value
			case "name":
				ours = value == s.tag
			}
		}
		if ours {
			list = append(list, id)
		}
	}
	return list, nil
}

func (s *redisServer) drop(ctx context.Context, connection string) error {
	err := s.client.ClientKillByFilter(ctx, "ID", connection).Err()
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}
