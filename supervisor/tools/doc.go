// Package tools lets a model use a session by the tools that it was trained on: a profile
// is a table of them, with the names and arguments of one provider, what each asks of the
// supervisor, and what of the answer the model is shown.
//
// It promises that a call is nothing but the operations that it leads to: each is asked by
// the caller's own right, passes policy and the journal as if it had been asked by itself,
// and its receipt comes along. What was not done is never told as done: an error, a denial
// and a cut are said in the provider's own form, with the code that the receipt has.
//
// It carries nothing out and knows no model: whoever calls gives it a [Host], and the text
// for the model is text. Budgets and the removal of terminal escapes are here because they are of
// this view; receipts and outputs have every byte.
package tools
