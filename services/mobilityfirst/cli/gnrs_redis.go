package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/services/mobilityfirst/nameservice"
)

// redisFlags holds the flags of a name service's Redis Cluster.
type redisFlags struct {
	nameservice.Redis
	passwordFile string
}

func (r *redisFlags) flag(flags *pflag.FlagSet) {
	flags.StringSliceVar(&r.Nodes, "redis", nil, "nodes of a Redis Cluster that holds the names, HOST:PORT; some of them are enough")
	flags.StringVar(&r.User, "redis-user", "", "user at Redis (default: the user named default)")
	flags.StringVar(&r.passwordFile, "redis-password-file", "", "file with the user's password")
	flags.StringVar(&r.TLS.CA, "redis-ca", "", "authority of Redis's certificates, PEM; enables TLS")
	flags.StringVar(&r.TLS.Cert, "redis-cert", "", "client certificate for Redis, PEM")
	flags.StringVar(&r.TLS.Key, "redis-key", "", "key of that certificate, PEM")
	flags.IntVar(&r.Replicas, "redis-replicas", 0, "number of replicas that must have a write before it is acknowledged")
	flags.TextVar(&r.Fsync, "redis-fsync", r.Fsync, "required appendfsync of Redis: always, everysec or no")
}

// read checks the flags and reads the password.
func (r *redisFlags) read() (nameservice.Redis, error) {
	if r.passwordFile != "" {
		var err error
		if r.Password, err = readPassword(r.passwordFile); err != nil {
			return r.Redis, fmt.Errorf("--redis-password-file: %w", err)
		}
	}
	if err := r.Check(); err != nil {
		return r.Redis, fmt.Errorf("--redis: %w", err)
	}
	return r.Redis, nil
}

// readPassword reads a password from a file that is not readable by everybody.
func readPassword(file string) (string, error) {
	info, err := os.Stat(file)
	if err != nil {
		return "", err
	}
	if mode := info.Mode().Perm(); mode&0o007 != 0 {
		return "", fmt.Errorf("%s is open to everybody (mode %o): chmod 600 it, and change the password if it may have been read", file, mode)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	password := strings.TrimRight(string(b), "\r\n")
	if password == "" {
		return "", errors.New(file + " has no password in it")
	}
	return password, nil
}
