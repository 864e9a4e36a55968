package api

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sluice-net/sluice/internal/wholefile"
)

const minTokenLength = 20

// maxTokenFile is the largest token file that is read, in bytes.
const maxTokenFile = 64 << 10

// LoadToken reads the token in the file, or makes a random one and writes it
// there, readable by its owner only. made says which of the two. A file that
// others can read is refused: its token is no secret.
func LoadToken(name, file string) (token Token, made bool, err error) {
	secret, err := readToken(file)
	if errors.Is(err, fs.ErrNotExist) {
		secret, err = makeToken(file)
		made = true
	}
	if err != nil {
		return Token{}, false, fmt.Errorf("token file: %w", err)
	}
	return NewToken(name, secret), made, nil
}

func readToken(file string) (string, error) {
	info, err := os.Stat(file)
	if err != nil {
		return "", err
	}
	if info.Mode().Perm()&0o007 != 0 {
		return "", fmt.Errorf("%s is readable by everybody (mode %o): chmod 600 it, and replace the token if it may have been read", file, info.Mode().Perm())
	}
	b, err := wholefile.Read(file, maxTokenFile)
	if err != nil {
		return "", err
	}
	secret := strings.TrimSpace(string(b))
	if len(secret) < minTokenLength || strings.ContainsAny(secret, " \t\n") {
		return "", fmt.Errorf("%s must hold one word of at least %d characters; delete it and a good one is made", file, minTokenLength)
	}
	return secret, nil
}

func makeToken(file string) (string, error) {
	raw := make([]byte, 32)
	if _, err := rand.Read(raw); err != nil {
		return "", err
	}
	secret := base64.RawURLEncoding.EncodeToString(raw)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return "", err
	}
	return secret, writeWhole(file, secret+"\n")
}

// writeWhole makes a file, for its owner only, that is there with all of its text or
// not at all: who waits for it may read it at once, and a process that is killed
// leaves none that it would refuse the next time. A file that exists is an error.
func writeWhole(file, text string) error {
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-*") // mode 600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Link(f.Name(), file)
}
