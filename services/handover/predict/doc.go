// Package predict predicts where and when a device will attach next, and when that place has to be
// prepared. It uses the device's position, speed and heading, and the coverage of the attachment
// points.
//
// It is pure: the time is an argument, and the only state is what the caller passes back in.
// Movement is assumed to be straight and at constant speed, which is all that one report can tell
// about the seconds that a set-up takes.
//
// Start reading at [Coverage.Predict].
package predict
