package wholefile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// ErrTooLarge means that a file is larger than Read was allowed to read.
var ErrTooLarge = errors.New("the file is too large")

// Read returns the content of a regular file of at most most bytes. It refuses pipes and devices,
// because a program that reads its files again while it runs would hang on one that never ends or
// never begins. Errors wrap those of package os, or ErrTooLarge.
func Read(path string, most int64) (_ []byte, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe without a writer opens at once
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read %s: not a regular file (%s): copy what it gives into one", path, info.Mode().Type())
	}
	content, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(content)) > most {
		err = fmt.Errorf("read %s: %w: more than %d bytes", path, ErrTooLarge, most)
	}
	if err != nil {
		return nil, err
	}
	return content, nil
}
