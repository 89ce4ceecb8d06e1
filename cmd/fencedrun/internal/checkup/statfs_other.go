//go:build !linux

package checkup

import "errors"

func statfs(string) (fileSystem, error) {
	return fileSystem{}, errors.New("this system does not say what it is")
}
