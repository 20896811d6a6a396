/*
 * action_rows.h
 *	  Where the rows of an action go.
 */
#ifndef HLOOM_ACTION_ROWS_H
#define HLOOM_ACTION_ROWS_H

#include "action.h"
#include "tcop/dest.h"

extern DestReceiver *hloom_action_rows_create(const HloomAction *action);
extern uint64 hloom_action_rows_count(const DestReceiver *receiver);

#endif							/* HLOOM_ACTION_ROWS_H */
