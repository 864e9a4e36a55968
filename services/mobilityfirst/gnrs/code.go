package gnrs

import (
	"errors"
	"fmt"

	"github.com/sluice-net/sluice/services/mobilityfirst/gnrswire"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

// Code is the result in an answer. The original release has the first two; those from 16 on are
// Sluice's.
type Code uint16

// The codes.
const (
	OK        Code = 0
	NotFound  Code = 1  // there is no record of the name, or it has expired
	Unsigned  Code = 16 // the write is not signed
	Forged    Code = 17 // the owner of the name has not signed it
	Over      Code = 18 // it has expired, or is valid for too long
	Old       Code = 19 // there is a newer record
	Malformed Code = 20 // it is not a record, or exceeds a record's limits
	TooOften  Code = 21 // too many requests from this address
	Busy      Code = 22 // too much is waiting; the client may try again
	Full      Code = 23 // there is no room for another name
	Failed    Code = 24 // the store has failed
	// Unreachable means that other domains keep the name, and none of them answers.
	Unreachable Code = 25
	// Unproven means that the write of a new name has no valid cookie. The client has to send it
	// again with the cookie in this answer.
	Unproven Code = 26
)

var codeTexts = map[Code]string{
	OK: "done", NotFound: "the name is not registered", Unsigned: "it is not signed", Forged: "it is not signed by the owner of the name",
	Over: "the record has expired, or is valid for more than a day", Old: "there is a newer record", Malformed: "not a record, or a record that exceeds the limits",
	TooOften: "too many requests from this address", Busy: "the server is busy: try again", Full: "there is no room for it", Failed: "the server's store of names has failed",
	Unreachable: "none of the domains that keep it answers", Unproven: "a new name needs the server's cookie",
}

// String returns the meaning of the code.
func (c Code) String() string {
	if text, known := codeTexts[c]; known {
		return text
	}
	return fmt.Sprintf("code %d", uint16(c))
}

// RefusedError is the error for a request that a server has refused.
type RefusedError struct {
	Kind gnrswire.Kind
	Code Code
}

// Error implements error.
func (e *RefusedError) Error() string { return fmt.Sprintf("%v refused: %v", e.Kind, e.Code) }

// codeOf returns the code for the result of a write.
func codeOf(err error) Code {
	for _, x := range []struct {
		err  error
		code Code
	}{
		{record.ErrSignature, Forged},
		{record.ErrExpired, Over},
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
