//go:build !unix

package storm

import (
	"context"
	"errors"
)

func startMachine(context.Context, string) (machine, error) {
	return nil, errors.New("a storm starts servers of its own on Unix only: give the URL of one that runs")
}
