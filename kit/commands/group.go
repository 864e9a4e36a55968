package commands

import (
	"os/user"
	"strconv"
)

// GroupID returns the number of the group whose members may use a socket, or -1 if name is empty.
func GroupID(name string) (int, error) {
	if name == "" {
		return -1, nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return -1, err
	}
	return strconv.Atoi(g.Gid)
}
