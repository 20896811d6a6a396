/*
 * lease_form.c
 *	  The row of a call: what is asked for, and who asks.
 *
 * Knows no page and no grant.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/inet.h"

#include "compat.h"
#include "lease_form.h"
#include "shmem.h"

/*
 * Writes the client's address as family byte and address.  Returns the length; 0 without one.
 * Asks core's SQL function once, since the header that declares the connection needs more than
 * PostgreSQL's own headers.
 */
static int
client_address(char *to)
{
	static int	length = -1;
	static char address[HLOOM_MAX_ADDR];

	if (unlikely(length < 0))
	{
		LOCAL_FCINFO(fcinfo, 0);
		Datum		found;

		InitFunctionCallInfoData(*fcinfo, NULL, 0, InvalidOid, NULL, NULL);
		found = inet_client_addr(fcinfo);
		length = 0;
		if (!fcinfo->isnull)
		{
			inet	   *client = DatumGetInetPP(found);

			address[0] = ip_family(client) == PGSQL_AF_INET ? 4 : 6;
			memcpy(address + 1, ip_addr(client), ip_addrsize(client));
			length = 1 + ip_addrsize(client);
		}
	}
	memcpy(to, address, length);
	return length;
}

/*
 * Makes the row of a call, all but its fence and its times.  Does not raise.
 */
void
hloom_form_row(HloomRow *row, const HloomCall *call)
{
	char	   *to = row->texts;
	int			app_len = application_name ? strlen(application_name) : 0;

	if (app_len > HLOOM_MAX_APP)
		app_len = pg_mbcliplen(application_name, app_len, HLOOM_MAX_APP);
	memset(row, 0, offsetof(HloomRow, texts));
	row->hash = (uint32) call->name.hash;
	row->flags = call->auto_extend ? HLOOM_ROW_AUTO_EXTEND : 0;
	row->mode = HLOOM_MODE_EXCLUSIVE;
	row->scope = call->scope;
	row->ns_len = call->name.ns_len;
	row->key_len = call->name.key_len;
	row->note_len = call->note_len;
	row->app_len = app_len;
	row->owner = call->owner;
	row->lease = call->lease;
	row->incarnation = hloom_shared->incarnation;
	row->role = GetUserId();
	row->pid = MyProcPid;

	memcpy(to, call->name.ns, row->ns_len);
	to += row->ns_len;
	memcpy(to, call->name.key, row->key_len);
	to += row->key_len;
	if (row->note_len > 0)
		memcpy(to, call->note, row->note_len);
	to += row->note_len;
	if (app_len > 0)
		memcpy(to, application_name, app_len);
	to += app_len;
	row->addr_len = client_address(to);
	to += row->addr_len;
	memset(to, 0, MAXALIGN(hloom_row_size(row)) - hloom_row_size(row));
}
