package demo

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
)

// makeFile writes size random bytes, which cannot be compressed, and returns their SHA-256.
func makeFile(path string, size int64) ([]byte, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(f, sum), rand.Reader, size); err != nil {
		f.Close()
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	return sum.Sum(nil), f.Close()
}

// hasSum reports whether the file has the given SHA-256.
func hasSum(path string, want []byte) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	return bytes.Equal(sum.Sum(nil), want), nil
}
