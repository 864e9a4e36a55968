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

// LoadToken reads the token in the file. If the file does not exist, it creates the file, readable by
// its owner only, with a random token. made reports whether it has done that. LoadToken returns an
// error for a file to which all users have access, because its token is no secret.
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

// writeWhole creates a file that is readable by its owner only. The file appears with its whole
// text or not at all, so that a waiting reader may read it at once, and a killed process leaves
// no invalid file. It returns an error if the file exists.
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
