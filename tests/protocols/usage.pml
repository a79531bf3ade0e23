/* usage.pml - what was used is counted once, whoever is killed.
 *
 * One executor's file (ledger.c), two leaders one after the other or both at once, the database.
 * Messages come late, twice or not at all; a commit is made and nobody hears of it.
 *
 * Checked: at every moment what was counted is what the database has, and what the file has and the
 * database does not. */
#define USED 4   /* in all */
#define FAULTS 3 /* the executor is killed; a message is lost */

byte counted, open, batch, number = 1, faults = FAULTS; /* number: of the batch, or of the next */
byte stored, total;                                     /* the database */
chan said[2] = [2] of { byte, byte };                   /* USAGE, to each leader: number, rows */
chan heard = [2] of { byte };                           /* USAGE_STORED */

proctype Exec()
{
    byte n;
end:
    do
    :: atomic { counted < USED -> /* ledger_count */
        counted++;
#ifndef BATCH_GROWS
        open++ }
#else
        batch = (batch > 0 -> batch + 1 : 0);
        open = (batch > 0 -> open : open + 1) }
#endif
    :: atomic { batch == 0 && open > 0 -> batch = open; open = 0 } /* ledger_batch: the next */
    :: atomic { batch > 0 && nfull(said[0]) -> said[0] ! number, batch } /* the same once more */
    :: atomic { batch > 0 && nfull(said[1]) -> said[1] ! number, batch }
    :: atomic { heard ? n -> /* ledger_stored */
        if
#ifndef ANY_NUMBER_STORED
        :: batch > 0 && n >= number ->
#else
        :: batch > 0 ->
#endif
            batch = 0; number++
        :: else
        fi;
        n = 0 }
    :: atomic { faults > 0 -> faults--; /* killed: the next process takes the file over */
#ifdef NUMBER_FORGOTTEN
        number++;
#endif
        skip }
    od
}

proctype Leader(byte i)
{
    byte n, rows;
end:
    do
    :: atomic { said[i] ? n, rows -> /* usage_tx */
        if
#ifndef NUMBER_UNCHECKED
        :: n > stored -> stored = n; total = total + rows
        :: n <= stored
#else
        :: true -> stored = n; total = total + rows
#endif
        fi;
        if
        :: nfull(heard) -> heard ! n
        :: true /* nobody hears of it */
        fi;
        n = 0; rows = 0 }
    :: atomic { faults > 0 && nempty(said[i]) -> faults--; said[i] ? _, _ }
    od
}

proctype Monitor()
{
end:
    atomic { total + (number > stored -> batch : 0) + open != counted -> assert(false) }
}

init
{
    atomic { run Exec(); run Leader(0); run Leader(1); run Monitor() }
}
