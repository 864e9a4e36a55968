package gnrs

import (
	"errors"
	"fmt"

	"github.com/sluice-net/sluice/services/mobilityfirst/gnrswire"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// Code is how an answer ends. Those from 16 on are ours; the original release has the first two.
type Code uint16

// The codes.
const (
	OK        Code = 0
	NotFound  Code = 1  // nobody has said where the name is, or what was said is over
	Unsigned  Code = 16 // only its owner says where a name is
	Forged    Code = 17 // it is not signed by the owner of the name
	Over      Code = 18 // it does not hold now, or for too long
	Old       Code = 19 // there is a newer one
	Malformed Code = 20 // it is no record, or says too much
	TooOften  Code = 21 // from that address
	Busy      Code = 22 // too much waits; try again
	Full      Code = 23 // there is no room
	Failed    Code = 24 // the store of names
	// Unreachable is for a name that other domains keep, of which none answers.
	Unreachable Code = 25
)

var codeTexts = map[Code]string{
	OK: "done", NotFound: "nobody has said where it is", Unsigned: "it is not signed", Forged: "it is not signed by the owner of the name",
	Over: "it does not hold now, or for longer than a day", Old: "there is a newer one", Malformed: "it cannot be read, or says too much",
	TooOften: "too often from this address", Busy: "too much waits: try again", Full: "there is no room for it", Failed: "the server's store of names has failed",
	Unreachable: "none of the domains that keep it answers",
}

// String says what the code means.
func (c Code) String() string {
	if text, known := codeTexts[c]; known {
		return text
	}
	return fmt.Sprintf("code %d", uint16(c))
}

// RefusedError is for what a server has refused.
type RefusedError struct {
	Kind gnrswire.Kind
	Code Code
}

// Error says what was refused, and why.
func (e *RefusedError) Error() string { return fmt.Sprintf("%v refused: %v", e.Kind, e.Code) }

// codeOf is the code for what was wrong with a write.
func codeOf(err error) Code {
	for _, x := range []struct {
		err  error
		code Code
	}{
		{record.ErrSignature, Forged},
		{record.ErrOver, Over},
		{record.ErrLimits, Malformed},
		{record.ErrLayout, Malformed},
		{record.ErrOld, Old},
		{record.ErrFull, Full},
		{record.ErrBusy, Busy},
		{record.ErrClosed, Busy},
	} {
		if errors.Is(err, x.err) {
			return x.code
		}
	}
	if err != nil {
		return Failed
	}
	return OK
}
